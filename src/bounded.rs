//! Files that people write, read whole: never more than such a file can hold.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Bytes of the largest file that is read whole: configuration, job files, secrets. The
/// largest that anybody wrote has some thousand; what is larger is another kind of file.
pub const MAX_BYTES: u64 = 4 << 20;

/// Reads a file whole.
///
/// # Errors
/// Those of the file system, [`io::ErrorKind::FileTooLarge`] above [`MAX_BYTES`], and
/// [`io::ErrorKind::InvalidInput`] for what is no file: a pipe that nobody writes to would
/// keep us waiting, a device has no end. `/dev/null` is an empty file, as everywhere.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_dir() && path != Path::new("/dev/null") {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a pipe, a socket or a device, not a regular file",
        ));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("larger than {} MiB", MAX_BYTES >> 20),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.toml");
        let largest = usize::try_from(MAX_BYTES).unwrap();
        std::fs::write(&path, vec![b'#'; largest]).unwrap();
        assert_eq!(read(&path).unwrap().len(), largest);
        std::fs::write(&path, vec![b'#'; largest + 1]).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_pipe_or_a_device_is_refused_before_it_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("x.toml");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/zero")] {
            assert_eq!(read(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
        assert_eq!(read(Path::new("/dev/null")).unwrap(), b"");
        assert!(read(dir.path()).is_err(), "a directory has its own error");
    }
}
