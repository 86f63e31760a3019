#!/usr/bin/env python3
"""Writes src/embed/builtin/classes.rs: the character classes that WordPiece tells apart.

    python3 models/classes.py

They are read off the package `tokenizers`, one code point after the other, because the
model was trained with its (older) Unicode tables: today's would cut some words differently.
"""

from pathlib import Path

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

OUTPUT = Path(__file__).resolve().parent.parent / "src" / "embed" / "builtin" / "classes.rs"


def normaliser(**on):
    flags = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return BertNormalizer(**{**flags, **on}).normalize_str


CLEAN, ACCENTS = normaliser(clean_text=True), normaliser(strip_accents=True)
SPLIT = BertPreTokenizer().pre_tokenize_str
CLASSES = {
    "DROPPED": ("Controls, formats and the like: they vanish.", lambda c: CLEAN(f"a{c}b") == "ab"),
    "SPACE": ("What separates words.", lambda c: CLEAN(f"a{c}b") == "a b"),
    "MARK": ("Marks that are stripped after canonical decomposition.", lambda c: ACCENTS(f"a{c}") == "a"),
    "PUNCTUATION": ("Each is a word of its own.", lambda c: len(SPLIT(f"a{c}b")) == 3),
}


def ranges(holds):
    found = []
    for code in range(0x80, 0x110000):
        if 0xD800 <= code < 0xE000 or not holds(chr(code)):
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def main():
    text = "//! Character classes outside ASCII, as ranges of code points. Written by models/classes.py.\n\n"
    for name, (comment, holds) in CLASSES.items():
        found = ranges(holds)
        text += f"/// {comment}\n#[rustfmt::skip]\npub(super) static {name}: [(u32, u32); {len(found)}] = [\n"
        for at in range(0, len(found), 6):
            text += "    " + " ".join(f"({a:#x}, {b:#x})," for a, b in found[at : at + 6]) + "\n"
        text += "];\n\n"
    OUTPUT.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
