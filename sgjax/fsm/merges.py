"""Which tokens a vocabulary's merges would join with what stands before them.

HOST. Imports numpy, portable's ranges and the tokenizer. Byte-pair encoding joins neighbours in the
order of its merges. Two tokens side by side stay two unless some merge joins the right end of the
first with the left end of the second while both ends are there: each part of a token exists from
the merge that makes it until the merge that takes it up.
"""

import json

import numpy as np
from numpy.typing import NDArray

from sgjax.fsm.kernels import Ints
from sgjax.fsm.portable import ranges
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.fast import FastTokenizer

_NEVER = np.iinfo(np.int32).max


class Merges:
    """The merges of a vocabulary in which each token is made by one of them at most.

    Args:
        num_ids: V.
        merges: i32[M, 3] the ids that each one joins, and what it makes, in their order.
    """

    def __init__(self, num_ids: int, merges: Ints) -> None:
        left, right, made = merges.T
        ranks = np.arange(len(merges), dtype=np.int32)
        self._birth = np.full(num_ids, -1, np.int32)
        self._birth[made] = ranks
        self._right = np.full(num_ids, -1, np.int32)
        self._right[made] = right
        # Merges by what they join on the left.
        by_left = np.argsort(left, kind="stable")
        self._first = np.searchsorted(left[by_left], np.arange(num_ids + 1))
        self._partner, self._rank = right[by_left], ranks[by_left]
        # Tokens by the parts at their left end, and the merge that takes each part up.
        lefts = np.full(num_ids, -1, np.int32)
        lefts[made] = left
        parts, tokens, deaths = _spines(lefts, self._birth)
        by_part = np.argsort(parts, kind="stable")
        self._spine_first = np.searchsorted(parts[by_part], np.arange(num_ids + 1))
        self._spine_token, self._spine_death = tokens[by_part], deaths[by_part]

    def joined(self, token: int) -> NDArray[np.int32]:
        """Return the tokens that do not stay whole behind a token in one word, ascending."""
        partners, ranks = [], []
        part, death = token, _NEVER
        while part >= 0:
            first, past = self._first[part], self._first[part + 1]
            early = self._rank[first:past] < death
            partners.append(self._partner[first:past][early])
            ranks.append(self._rank[first:past][early])
            part, death = int(self._right[part]), int(self._birth[part])
        partner, rank = np.concatenate(partners), np.concatenate(ranks)
        first, past = self._spine_first[partner], self._spine_first[partner + 1]
        entries = ranges(first, past)
        there = self._spine_death[entries] >= np.repeat(rank, past - first)
        return np.unique(self._spine_token[entries[there]])


def read_merges(tokenizer: Tokenizer) -> Merges | None:
    """Return a tokenizer's merges; None where they are not all that decides how words are cut."""
    if not isinstance(tokenizer, FastTokenizer):
        return None
    rules = json.loads(tokenizer.rules())
    model = rules["model"]
    others = ("byte_fallback", "ignore_merges", "dropout", "continuing_subword_prefix")
    if model["type"] != "BPE" or any(model.get(key) for key in others):
        return None
    if rules["normalizer"] not in (None, {"type": "NFC"}):
        return None
    ids = model["vocab"]
    pairs = [merge if isinstance(merge, list) else merge.split(" ", 1) for merge in model["merges"]]
    merges = np.array([(ids[a], ids[b], ids[a + b]) for a, b in pairs], np.int32).reshape(-1, 3)
    made = merges[:, 2]
    birth = np.full(tokenizer.vocab_size, -1, np.int64)
    birth[made] = np.arange(len(merges))
    in_order = (birth[merges[:, :2]] < np.arange(len(merges))[:, None]).all()
    if len(np.unique(made)) < len(made) or not in_order:
        return None
    return Merges(tokenizer.vocab_size, merges)


def _spines(lefts: Ints, birth: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the parts at the left end of each token, the token, and when the part is taken up."""
    token = np.arange(len(lefts), dtype=np.int32)
    part, death = token, np.full(len(lefts), _NEVER, np.int32)
    found = []
    while len(part):
        found.append((part, token, death))
        death, part = birth[part], lefts[part]
        inside = part >= 0
        part, token, death = part[inside], token[inside], death[inside]
    parts, tokens, deaths = (np.concatenate(column) for column in zip(*found, strict=True))
    return parts, tokens, deaths
