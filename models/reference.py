#!/usr/bin/env python3
"""Writes the fixtures that the tests of the builtin embedder compare against.

    python3 models/reference.py DIR

DIR holds model.safetensors, vocab.txt and tokenizer.json (see models/README.md). Needs the
packages `numpy` and `tokenizers`; the build and the tests need neither.

tests/fixtures/embed/texts.txt      (read)    one hand-written text a line
tests/fixtures/embed/tokens.jsonl   (written) {"text", "ids"}: ids by `tokenizers`, with the two marks
tests/fixtures/embed/vectors.f16    (written) vectors of the first 200 texts of tokens.jsonl,
                                    384 half floats each, little endian, from a plain f32 forward pass
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "embed"
N_REFERENCE = 200
MAX_TOKENS = 256
HEADS = 12


def load(path):
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    tensors = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        start, end = entry["data_offsets"]
        data = np.frombuffer(raw[8 + length + start : 8 + length + end], dtype="<f4")
        tensors[name] = data.reshape(entry["shape"])
    return tensors


def erf(x):
    """Series below 3, continued fraction above, in f64: accurate to 1e-12."""
    x = x.astype(np.float64)
    small = np.clip(np.abs(x), 0, 3)
    term, total = small.copy(), small.copy()
    for n in range(1, 90):
        term = term * (-small * small) / n
        total += term / (2 * n + 1)
    series = 2 / np.sqrt(np.pi) * total
    large = np.maximum(np.abs(x), 3)
    fraction = np.zeros_like(large)
    for n in range(60, 0, -1):
        fraction = (n / 2) / (large + fraction)
    tail = 1 - np.exp(-large * large) / (np.sqrt(np.pi) * (large + fraction))
    return np.sign(x) * np.where(np.abs(x) <= 3, series, tail)


def norm(x, t, name):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + np.float32(1e-12)) * t[name + ".weight"] + t[name + ".bias"]


def linear(x, t, name):
    return x @ t[name + ".weight"].T + t[name + ".bias"]


def embed(ids, t):
    """Vector of one text of token ids: mean of the last layer, unit length."""
    ids = np.array(ids)
    x = t["embeddings.word_embeddings.weight"][ids]
    x = x + t["embeddings.position_embeddings.weight"][: len(ids)] + t["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, t, "embeddings.LayerNorm")
    for layer in range(6):
        name = f"encoder.layer.{layer}"

        def heads(kind):
            return linear(x, t, f"{name}.attention.self.{kind}").reshape(len(ids), HEADS, -1).swapaxes(0, 1)

        q, k, v = heads("query"), heads("key"), heads("value")
        scores = q @ k.swapaxes(1, 2) / np.sqrt(np.float32(q.shape[2]))
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        context = (scores @ v).swapaxes(0, 1).reshape(len(ids), -1)
        x = norm(x + linear(context, t, f"{name}.attention.output.dense"), t, f"{name}.attention.output.LayerNorm")
        inner = linear(x, t, f"{name}.intermediate.dense")
        inner = (inner * 0.5 * (1 + erf(inner / np.sqrt(2)))).astype(np.float32)
        x = norm(x + linear(inner, t, f"{name}.output.dense"), t, f"{name}.output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def longer_texts(lines):
    """71 texts of 2 to 15 lines each, so that every length up to the limit occurs."""
    for i in range(71):
        count = 2 + i % 14
        picked = [lines[(i * 7 + j * 13) % len(lines)] for j in range(count)]
        yield ("\n" if i % 2 else ". ").join(picked)


def odd_texts(lines):
    """What only the tokenizer has to get right."""
    for line in lines:
        yield line.upper()
    for at in range(0, len(lines) - 3, 3):
        yield "  ".join(line[: 7 + at % 40] for line in lines[at : at + 3])
    yield from [
        "",
        " ",
        "\n\t\r\n",
        "a" * 99,
        "a" * 100,
        "a" * 101,
        "é" * 100,
        "e\u0301" * 100,
        "日本語のテキスト",
        "日本語text混在mixed文字列",
        "中文，标点。符号！",
        "한국어 문장",
        "ｆｕｌｌｗｉｄｔｈ　ｓｐａｃｅ",
        "👩‍👩‍👧‍👦 family",
        "👍🏽 thumbs 👎",
        "🇩🇪🇫🇷",
        "a\u200bb\u200cc\u200dd\ufeffe",
        "soft\u00adhyphen",
        "nul\x00byte and \x07 bell \x1b[31mred\x1b[0m",
        "replacement \ufffd character",
        "tab\tseparated\tvalues",
        "line\u2028separator\u2029paragraph\u0085next",
        "no\u00a0break\u202fnarrow\u2003em\u3000ideographic",
        "İstanbul ISPARTA ıssız",
        "ΣΊΣΥΦΟΣ ὈΔΥΣΣΕΎΣ",
        "ẞ ß ﬁ ﬂ Ǆ ǅ",
        "Å Å Å",
        "Việt Nam Đà Nẵng",
        "हिन्दी में एक वाक्य",
        "ภาษาไทยไม่มีช่องว่าง",
        "עברית עם נִקּוּד",
        "العربية مع تَشْكِيل",
        "ქართული ᲥᲐᲠᲗᲣᲚᲘ",
        "𝔉𝔯𝔞𝔨𝔱𝔲𝔯 𝒮𝒸𝓇𝒾𝓅𝓉",
        "½ ² ³ ① ⅷ Ⅷ",
        "$100 €50 £20 ¥3000 ₿1",
        "‘single’ “double” «guillemets» „low“",
        "— – ‐ ‑ − · • † ‡ § ¶ © ® ™",
        "a_b-c.d/e\\f|g",
        "don't can't it's o'clock",
        "C# F# C++ .NET node.js",
        "!!!???...,,,;;;:::",
        "⁇ ⁈ ‼ ¿ ¡",
        "𠀀𪜀 rare ideographs 豈更",
        "x\u0338 combining overlay \u20dd",
        "\u037e greek question mark \u1fef",
        "price:12,345.67€/kg@home#tag",
        "0x1F 1e-9 3.14159 1_000_000",
        "https://example.org/a?b=c&d=e#f",
        "user@example.org <mailto:user@example.org>",
        "unaffordable unbelievableness antidisestablishmentarianism",
        "##ing ##ed [brackets] {braces}",
        "\ue000 private \U000f0000 use",
        "\u0378 unassigned \U0001fbfa",
        "zalgo t\u0336\u0321\u0353e\u0334\u0322x\u0337\u031bt\u0335",
    ]


def main():
    directory = Path(sys.argv[1])
    tensors = load(directory / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def ids_of(text):
        return tokenizer.encode(text).ids

    def cut(ids):
        return ids if len(ids) <= MAX_TOKENS else ids[: MAX_TOKENS - 1] + ids[-1:]

    # The example of the library that the model comes from, with its published cosines.
    three = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    a, b, c = (embed(ids_of(text), tensors) for text in three)
    cosines = [f"{x @ y:.4f}" for x, y in ((a, b), (a, c), (b, c))]
    assert cosines == ["0.6660", "0.1046", "0.1411"], cosines

    lines = (FIXTURES / "texts.txt").read_text(encoding="utf-8").split("\n")[:-1]
    texts = lines + list(longer_texts(lines))
    assert len(texts) == N_REFERENCE, len(texts)
    vectors = np.stack([embed(cut(ids_of(text)), tensors) for text in texts])
    (FIXTURES / "vectors.f16").write_bytes(vectors.astype("<f2").tobytes())

    with open(FIXTURES / "tokens.jsonl", "w", encoding="utf-8") as out:
        for text in texts + list(odd_texts(lines)):
            out.write(json.dumps({"text": text, "ids": ids_of(text)}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
