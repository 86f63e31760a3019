#!/bin/sh
# Lays out what the image is made of: DIRECTORY/root holds the binary, the libraries it is linked
# with and the certificates that TLS is checked against, DIRECTORY/data is empty.
# Usage: rootfs.sh BINARY DIRECTORY
set -eu
binary=$1
root=$2/root

install -D -m 0755 "$binary" "$root/usr/local/bin/lore"
# "libc.so.6 => /lib/…/libc.so.6 (0x…)" and "/lib64/ld-linux-x86-64.so.2 (0x…)"
libraries=$(ldd "$binary" | sed -n 's/^.*=> \(\/[^ ]*\) .*$/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*$/\1/p')
for library in $libraries; do
  install -D -m 0755 "$(readlink -f "$library")" "$root$library"
done
install -D -m 0644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
install -d -m 0750 "$2/data"
