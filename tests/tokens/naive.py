"""A byte-level BPE written for clarity: the reference the fast tokenizers are compared with."""

import unicodedata
from itertools import pairwise

CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


def kind(char: str) -> str:
    """Return letter, number, space or other, as the regexes \\p{L}, \\p{N} and \\s see it."""
    category = unicodedata.category(char)
    if category[0] in "LN":
        return category[0]
    # \s is White_Space; Python's isspace also counts the separators U+001C to U+001F.
    return "space" if char.isspace() and not "\x1c" <= char <= "\x1f" else "other"


def words(text: str) -> list[str]:
    """Cut a text as GPT-2's regex does, each digit alone (SmolLM)."""
    parts: list[str] = []
    start = 0
    for i, char in enumerate(text):
        if kind(char) == "N":
            parts += [*gpt2_words(text[start:i]), char]
            start = i + 1
    return parts + gpt2_words(text[start:])


def gpt2_words(text: str) -> list[str]:
    """'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"""
    out, at = [], 0
    while at < len(text):
        end = next((at + len(c) for c in CONTRACTIONS if text.startswith(c, at)), at)
        if end == at:
            first = at + (text[at] == " ")
            if first < len(text) and kind(text[first]) != "space":
                end = first
                while end < len(text) and kind(text[end]) == kind(text[first]):
                    end += 1
            else:
                end = at
                while end < len(text) and kind(text[end]) == "space":
                    end += 1
                if end < len(text) and end - at > 1:
                    end -= 1
        out.append(text[at:end])
        at = end
    return out


def bpe(word: bytes, ranks: dict[tuple[bytes, bytes], int]) -> list[bytes]:
    """Merge the best-ranked pair, leftmost first, until none is left."""
    parts = [word[i : i + 1] for i in range(len(word))]
    while True:
        pairs = [(ranks[p], i) for i, p in enumerate(pairwise(parts)) if p in ranks]
        if not pairs:
            return parts
        _, i = min(pairs)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
