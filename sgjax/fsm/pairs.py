"""CanonicalPairs: which token the tokenizer itself would write behind which.

HOST. Imports numpy, its neighbours and the tokenizer. The tokenizer is asked by encoding the texts
of tokens side by side. A whole vocabulary of such questions takes a second; so where a tokenizer's
merges are known (`merges.py`), only what they leave open is asked.
"""

import unicodedata

import numpy as np
from numpy.typing import NDArray

from sgjax.fsm.kernels import Bools
from sgjax.fsm.merges import read_merges
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.middle import encode_bytes

Tail = tuple[int, ...]
"""The last token; what was before it, too, where that decides what may follow."""

_NOTHING, _LETTER, _DIGIT, _SPACE, _MARK, _COMBINING = range(6)
"""Kinds of characters that tokenizers cut between.

`_NOTHING` where there is no whole character; `_COMBINING` only of what a token begins with.
"""

_ROWS = 4096
"""Rows that are remembered at most."""


class CanonicalPairs:
    """Which token may follow which.

    Args:
        tokenizer: decides.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.num_ids = tokenizer.vocab_size
        unusable = tokenizer.special_ids | tokenizer.end_ids
        self._data = [
            b"" if i in unusable else tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)
        ]
        kinds = [_kinds(data) for data in self._data]
        self._first = np.array([first for first, _, _ in kinds], np.int8)
        self._last = np.array([last for _, last, _ in kinds], np.int8)
        self._uniform = np.array([uniform for _, _, uniform in kinds], np.bool_)
        self._first_byte = np.array([data[0] if data else 0 for data in self._data], np.uint8)
        self._last_byte = np.array([data[-1] if data else 0 for data in self._data], np.uint8)
        self._breaks = np.isin(self._first_byte, list(b"\r\n"))
        self._touching = _touching(self._data)
        self._merges = read_merges(tokenizer)
        self._known: dict[tuple[int, ...], bool] = {}
        self._rows: dict[Tail, NDArray[np.uint8]] = {}
        self._alone: dict[tuple[int, int], Bools] = {}
        self.row(())  # all others begin with it: made by who compiles, not in a step

    def allows(self, tail: Tail, token: int) -> bool:
        """Return whether some text is written with `token` right behind `tail`.

        While a character is incomplete everything is allowed: only its last byte can tell.
        """
        row = self._rows.get(tail)
        if row is not None:
            return bool(row[token >> 3] >> (token & 7) & 1)
        ids = (*tail, token)
        found = self._known.get(ids)
        if found is None:
            if len(self._known) > 200_000:  # a memo, not a record
                self._known.clear()
            found = self._known[ids] = self._test(ids)
        return found

    def row(self, tail: Tail) -> Bools:
        """Return bool[V], which tokens `allows` allows behind `tail`."""
        row = self._rows.get(tail)
        if row is None:
            if len(self._rows) >= _ROWS:
                self._rows.clear()
            row = self._rows[tail] = np.packbits(self._compute(tail), bitorder="little")
        return np.unpackbits(row, count=self.num_ids, bitorder="little").view(np.bool_)

    def follow(self, tail: Tail, token: int) -> Tail:
        """Return the tail after one more token."""
        if self.alone(tail)[token]:
            return (token,)
        ids = (*tail, token)
        if self._is_whole(ids):
            for length in range(2, len(ids)):
                if self._is_whole(ids[-length:]):
                    return ids[-length:]
        return ids

    def alone(self, tail: Tail) -> Bools:
        """Return bool[V], the tokens behind `tail` that then are all of the tail.

        White space, digits and marks are cut together with their like before them: of three spaces
        and a word the last space goes with the word. So are marks with a space or line breaks, and
        letters with "'". And a boundary next to a character that is not
        whole yet is looked at when it is, unless no merge reaches over it.
        """
        if not tail:
            return np.ones(self.num_ids, np.bool_)
        kind, byte = int(self._last[tail[-1]]), int(self._last_byte[tail[-1]])
        found = self._alone.get((byte, kind))
        if found is None:
            whole = self._first > 0
            if kind == _NOTHING or byte == ord("'"):
                found = np.zeros(len(whole), np.bool_)
            elif kind == _LETTER:
                begins = (self._first_byte & 0xC0) != 0x80
                found = whole | (begins & ~self._touching[byte, self._first_byte])
            else:
                like = (self._first == kind) | (self._first == _COMBINING)
                if kind == _SPACE:
                    like |= self._first == _MARK
                elif kind == _MARK:
                    like |= self._breaks
                found = whole & ~(self._uniform & like)
            self._alone[byte, kind] = found
        return found

    def before(self, token: int) -> Bools:
        """Return bool[V], tokens that as a tail surely allow `token`, which is then a tail itself.

        That is where neither a merge nor the end of a word can reach over the boundary: no token
        holds the bytes beside it next to each other.
        """
        first, last = self._first[token], self._last
        if first in (_NOTHING, _COMBINING) or not self.allows((), token):
            return np.zeros(self.num_ids, np.bool_)
        apart = ~self._touching[self._last_byte, self._first_byte[token]]
        firm = (last != _NOTHING) & (last != _SPACE) & (self._last_byte != ord("'"))
        if self._breaks[token]:
            firm &= last != _MARK
        found: Bools = apart & firm & ((last != first) | (last == _LETTER))
        return found

    def _compute(self, tail: Tail) -> Bools:
        # What is not written as one token by itself is not behind another either.
        found = self.row(()) if tail else np.ones(self.num_ids, np.bool_)
        whole = self._first > 0
        if not self._is_whole(tail):
            asked = (self._first_byte & 0xC0) == 0x80  # what goes on inside the character
        elif self._merges is None or self._may_be_cut(tail):
            asked = whole
        else:
            kind = _kind(self._bytes(tail).decode()[-1])
            joined = np.zeros(len(found), np.bool_)
            joined[self._merges.joined(tail[-1])] = True
            if kind == _LETTER and b"'" not in self._bytes(tail):
                # Letters stand in one word, so they are joined; but for those of "'s" and its like.
                found &= ~(joined & (self._first == _LETTER))
                asked = joined & whole & (self._first != _LETTER)
            else:
                asked = (joined | (self._first == kind)) & whole
                if kind == _MARK:  # later tokenizers put line breaks behind marks into their word
                    asked |= self._breaks
            asked |= self._first == _COMBINING  # may become one character with what it follows
        for token in np.flatnonzero(asked).tolist():
            found[token] = self._test((*tail, token))
        return found

    def _may_be_cut(self, tail: Tail) -> bool:
        """Return whether what follows a tail decides how the tail itself is cut."""
        text = self._bytes(tail).decode()
        return text[-1:].isspace() or text[-1:] in ("", "'")

    def _test(self, ids: tuple[int, ...]) -> bool:
        if not self._is_whole(ids):
            return True
        data = self._bytes(ids)
        for after in (b"", b"a"):
            written = encode_bytes(self._tokenizer, data + after)
            if written is not None and tuple(written[: len(ids)]) == ids:
                return True
        return False

    def _is_whole(self, ids: tuple[int, ...]) -> bool:
        try:
            self._bytes(ids).decode()
        except UnicodeDecodeError:
            return False
        return True

    def _bytes(self, ids: tuple[int, ...]) -> bytes:
        return b"".join([self._data[i] for i in ids])


def _kinds(data: bytes) -> tuple[int, int, bool]:
    """Return the kinds of a token's first and last character, and whether all are of one kind."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _NOTHING, _NOTHING, False
    if not text:
        return _NOTHING, _NOTHING, False
    kinds = [_kind(char) for char in text]
    return _COMBINING if _may_combine(text[0]) else kinds[0], kinds[-1], len(set(kinds)) == 1


def _kind(char: str) -> int:
    if char.isspace():
        return _SPACE
    return {"L": _LETTER, "N": _DIGIT}.get(unicodedata.category(char)[0], _MARK)


def _may_combine(char: str) -> bool:
    """Return whether a character may become one with what is before it, in NFC."""
    hangul = "\u1161" <= char <= "\u11ff"  # vowels and finals
    return hangul or unicodedata.category(char)[0] == "M"


def _touching(tokens: list[bytes]) -> Bools:
    """Return bool[256, 256], which bytes stand next to each other inside some token."""
    found = np.zeros((256, 256), np.bool_)
    data = np.frombuffer(b"".join(tokens), np.uint8)
    inside = np.ones(max(len(data) - 1, 0), np.bool_)
    ends = np.cumsum([len(token) for token in tokens])
    inside[ends[(ends > 0) & (ends < len(data))] - 1] = False
    found[data[:-1][inside], data[1:][inside]] = True
    return found
