"""Vocabulary: a tokenizer's ids as byte strings, and the trie of them that masks are walked over.

HOST. Imports numpy, kernels' records and the tokenizer protocol.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sgjax.fsm.kernels import Trie
from sgjax.tokens.base import Tokenizer

Level = Literal["byte", "char"]


class Vocabulary:
    """What a constraint has to know of a tokenizer; immutable.

    Special tokens never match a constraint: their literal text is not what they mean. End ids are
    allowed exactly where the constraint is fulfilled.

    Args:
        tokenizer: gives the bytes of every id.
        size: V, the width of masks: the model's rows, at least the tokenizer's ids; ids beyond
            those are never allowed.
        level: `byte` lets tokens hold parts of characters; `char` (the paper's automaton) allows
            only tokens of whole characters.
    """

    def __init__(self, tokenizer: Tokenizer, size: int, level: Level = "byte") -> None:
        self.size = size
        self.num_words = -(-size // 32)
        self.fingerprint = f"{tokenizer.fingerprint}:{size}:{level}"
        self.end_ids = frozenset(i for i in tokenizer.end_ids if i < size)
        unusable = tokenizer.special_ids | tokenizer.end_ids
        self.token_bytes: tuple[bytes, ...] = tuple(
            b"" if i in unusable else tokenizer.token_bytes(i)
            for i in range(min(size, tokenizer.vocab_size))
        )
        usable = [i for i, data in enumerate(self.token_bytes) if data]
        if level == "char":
            usable = [i for i in usable if _is_text(self.token_bytes[i])]
        self.trie = build_trie(self.token_bytes, usable)
        self.bytes = frozenset(self.trie.byte.tolist())
        """Bytes that occur in any token: text with others is out of reach."""
        self.lone_bytes = frozenset(self.trie.byte[self._single_tokens()].tolist())
        """Bytes that are tokens by themselves: text of these alone is always in reach."""
        self.end_row = pack_ids(sorted(self.end_ids), self.num_words)

    def _single_tokens(self) -> NDArray[np.bool_]:
        lone: NDArray[np.bool_] = (self.trie.depth == 1) & (np.diff(self.trie.token_first) > 0)
        return lone


def pack_ids(ids: Sequence[int] | NDArray[np.integer], num_words: int) -> NDArray[np.uint32]:
    """Return the mask u32[num_words] with the bits of `ids` set."""
    bits = np.zeros(32 * num_words, np.uint8)
    bits[np.asarray(ids, np.int64)] = 1
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)


def unpack_ids(row: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the ids whose bits are set in a mask, ascending."""
    bits = np.unpackbits(row.astype("<u4").view(np.uint8), bitorder="little")
    ids: NDArray[np.int64] = np.flatnonzero(bits)
    return ids


def build_trie(token_bytes: Sequence[bytes], ids: Sequence[int]) -> Trie:
    """Build the trie of some tokens.

    Args:
        token_bytes: bytes of every id.
        ids: the tokens to hold, none of them empty.
    """
    ranked = sorted(ids, key=lambda i: token_bytes[i])
    byte = bytearray()
    depth: list[int] = []
    parent: list[int] = []
    counts: list[int] = []
    path: list[int] = []  # nodes on the way to the token before
    before = b""
    for token_id in ranked:
        data = token_bytes[token_id]
        shared = _common_prefix(before, data)
        del path[shared:]
        for at in range(shared, len(data)):
            parent.append(path[-1] if path else -1)
            path.append(len(byte))
            byte.append(data[at])
            depth.append(at + 1)
            counts.append(0)
        counts[path[-1]] += 1
        before = data
    depths = np.array(depth, np.int16)
    order = np.argsort(depths, kind="stable").astype(np.int32)
    return Trie(
        byte=np.frombuffer(bytes(byte), np.uint8),
        depth=depths,
        skip=_skips(depths),
        token_first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        token_ids=np.array(ranked, np.int32),
        order=order,
        child_first=_child_first(order, np.array(parent, np.int64)),
    )


def _skips(depth: NDArray[np.int16]) -> NDArray[np.int32]:
    """Return for each preorder node the next one that is not deeper."""
    skip = np.empty(len(depth), np.int32)
    open_nodes: list[int] = []
    for node, d in enumerate(depth.tolist()):
        while len(open_nodes) >= d:
            skip[open_nodes.pop()] = node
        open_nodes.append(node)
    skip[open_nodes] = len(depth)
    return skip


def _child_first(order: NDArray[np.int32], parent: NDArray[np.int64]) -> NDArray[np.int32]:
    n = len(order)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    below = parent[order]
    counts = np.bincount(place[below[below >= 0]], minlength=n)
    roots = int((below < 0).sum())
    return (roots + np.concatenate([[0], np.cumsum(counts)])).astype(np.int32)


def _common_prefix(a: bytes, b: bytes) -> int:
    if b.startswith(a):  # most often, the tokens being sorted
        return len(a)
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
