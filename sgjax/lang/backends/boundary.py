"""Token boundaries: which tokens of a prefix survive whatever follows. Imports the tokenizer.

The tokens of a text's beginning are the beginning of the text's tokens only up to some place near
its end: what follows may merge with its last characters.
"""

from collections.abc import Sequence
from functools import lru_cache

from sgjax.errors import ConfigError
from sgjax.tokens.base import Tokenizer

LAST_WORD = 16
"""How many tokens at most the end of a prefix is taken to be unsure of."""

MAX_TOKENISATIONS = 256
"""How many tokenisations of one text `tokenisations` enumerates at most."""


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many tokens two sequences have in common at their beginning."""
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return min(len(a), len(b))


def stable_prefix(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the tokens of `text` that a continuation leaves alone.

    Vocabularies do not merge across the beginning of a word's space, so everything before the last
    word (or the last run of spaces) is sure. Of a last word of many tokens only the end can change
    in practice; where more does, a little less is shared and nothing is wrong.
    """
    tokens = tokenizer.encode(text, add_bos=True)
    if not _merges(tokenizer):  # type: ignore[arg-type]  # protocols say nothing of hashing
        return tokens
    for kept in range(len(tokens) - 1, max(0, len(tokens) - LAST_WORD), -1):
        before, after = (tokenizer.token_bytes(t) for t in tokens[kept - 1 : kept + 1])
        if after[:1].isspace() and not before[-1:].isspace():
            return tokens[:kept]
    return tokens[: max(0, len(tokens) - LAST_WORD)]


def tokenisations(tokenizer: Tokenizer, data: bytes) -> list[tuple[int, ...]]:
    """Return all ways to write `data` as tokens, special tokens left out.

    Raises:
        ConfigError: there are more than MAX_TOKENISATIONS.
    """
    ids = _ids_by_bytes(tokenizer)  # type: ignore[arg-type]  # protocols say nothing of hashing
    longest = max(map(len, ids))
    # ways[i]: number of tokenisations of data[i:]; counted before any is built.
    ways = [0] * len(data) + [1]
    for start in range(len(data) - 1, -1, -1):
        for end in range(start + 1, min(len(data), start + longest) + 1):
            ways[start] += ways[end] * len(ids.get(data[start:end], ()))
    if ways[0] > MAX_TOKENISATIONS:
        raise ConfigError(
            f"{data.decode('utf-8', 'replace')!r} has {ways[0]} tokenisations, more than the "
            f"{MAX_TOKENISATIONS} that are scored one by one; use shorter choices, or "
            "choices_method=sgl.token_length_normalized"
        )
    built: list[list[tuple[int, ...]]] = [[] for _ in data] + [[()]]
    for start in range(len(data) - 1, -1, -1):
        for end in range(start + 1, min(len(data), start + longest) + 1):
            for token in ids.get(data[start:end], ()):
                built[start] += [(token, *rest) for rest in built[end]]
    return built[0]


@lru_cache(maxsize=2)
def _merges(tokenizer: Tokenizer) -> bool:
    """Return whether any token is longer than a byte."""
    special = tokenizer.special_ids | tokenizer.end_ids
    return any(
        len(tokenizer.token_bytes(token)) > 1
        for token in range(tokenizer.vocab_size)
        if token not in special
    )


@lru_cache(maxsize=2)
def _ids_by_bytes(tokenizer: Tokenizer) -> dict[bytes, list[int]]:
    table: dict[bytes, list[int]] = {}
    special = tokenizer.special_ids | tokenizer.end_ids
    for token in range(tokenizer.vocab_size):
        if token not in special:
            table.setdefault(tokenizer.token_bytes(token), []).append(token)
    table.pop(b"", None)
    return table
