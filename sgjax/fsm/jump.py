"""Jump-forward: how forced text becomes tokens (paper, section 3.2 and appendix B).

HOST. Imports tokens. A strategy gets the output so far and the text that must follow, and says how
many output tokens stay and which tokens come behind them. The four:

- `NoJump`: none; every token is sampled.
- `Retokenize` (the paper's): the whole text is encoded anew; tokens may change (rule 3).
- `StableTokens` (the default): appends only tokens that no continuation can change; what is left
  of the forced text is sampled under the mask, which lets a token reach beyond it.
- `PlainString`: the forced text is encoded alone. For study: its tokens are often not canonical.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sgjax.tokens.base import Tokenizer
from sgjax.tokens.middle import encode_bytes


@dataclass(frozen=True)
class Jump:
    """What becomes of an output whose next bytes are forced.

    Attributes:
        keep: output tokens that stay.
        append: tokens that come behind them; may be none where some are held back.
        held: tokens that likely follow, in which the forced text that is left would be written.
    """

    keep: int
    append: tuple[int, ...]
    held: tuple[int, ...] = ()


class JumpMode(Protocol):
    """Turn forced text into tokens."""

    def jump(
        self, output_ids: Sequence[int], forced: bytes, follow: frozenset[int] | None
    ) -> Jump | None:
        """Return the jump, or None for none.

        Args:
            output_ids: the output tokens so far.
            forced: the bytes that must follow, whole characters at their end; not empty.
            follow: the bytes that can come behind `forced`; None if that is not known.
        """
        ...


class NoJump:
    """Sample every token."""

    def jump(
        self, output_ids: Sequence[int], forced: bytes, follow: frozenset[int] | None
    ) -> Jump | None:
        """Return None."""
        return None


class Retokenize:
    """Encode the whole output text anew and keep the tokens up to the first changed one.

    Args:
        tokenizer: encodes.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def jump(
        self, output_ids: Sequence[int], forced: bytes, follow: frozenset[int] | None
    ) -> Jump | None:
        """See `JumpMode`."""
        data = b"".join([self._tokenizer.token_bytes(i) for i in output_ids]) + forced
        ids = encode_bytes(self._tokenizer, data)
        if ids is None:
            return None
        keep = common_prefix(output_ids, ids)
        return Jump(keep, tuple(ids[keep:]))


class PlainString:
    """Encode the forced text alone.

    Args:
        tokenizer: encodes.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def jump(
        self, output_ids: Sequence[int], forced: bytes, follow: frozenset[int] | None
    ) -> Jump | None:
        """See `JumpMode`."""
        ids = encode_bytes(self._tokenizer, forced)
        return None if ids is None else Jump(len(output_ids), tuple(ids))


class StableTokens:
    """Append the tokens up to the last boundary that no continuation can change.

    Let T be the text up to the end of what is forced. In the tokenisation of any text that begins
    with T some token covers the end of T, or one ends there. Say that it begins at byte p of T:
    before it stand the tokens of T[:p]. So what all these prefixes, over all p at which such a
    token exists, have in common is certain.

    Args:
        tokenizer: encodes.
        guess: say which tokens are held back, for the scheduler to guess.
        context: output tokens that are looked at before the forced text.
        memory: jumps that are remembered.
    """

    def __init__(
        self, tokenizer: Tokenizer, guess: bool = True, context: int = 8, memory: int = 50_000
    ) -> None:
        self._tokenizer = tokenizer
        self._guess = guess
        self._context = context
        unusable = tokenizer.special_ids | tokenizer.end_ids
        usable = (i for i in range(tokenizer.vocab_size) if i not in unusable)
        self._sorted = sorted({tokenizer.token_bytes(i) for i in usable} - {b""})
        self._longest = max(map(len, self._sorted), default=0)
        self._memory = memory
        self._known: dict[tuple[tuple[int, ...], bytes, frozenset[int] | None], _Split] = {}

    def jump(
        self, output_ids: Sequence[int], forced: bytes, follow: frozenset[int] | None
    ) -> Jump | None:
        """See `JumpMode`."""
        key = (tuple(output_ids[-self._context :]), forced, follow)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= self._memory:
                self._known.clear()
            found = self._known[key] = self._split(key[0], forced, follow)
        append, held = found
        if not self._guess:
            held = ()
        return Jump(len(output_ids), append, held) if append or held else None

    def _split(
        self, tail: tuple[int, ...], forced: bytes, follow: frozenset[int] | None
    ) -> "_Split":
        """Return the tokens of forced text behind `tail`: the certain ones and the likely ones."""
        for start in range(len(tail) + 1):
            known = tail[start:]
            data = b"".join([self._tokenizer.token_bytes(i) for i in known]) + forced
            ids = encode_bytes(self._tokenizer, data)
            # A context that the tokenizer itself would not write is of no use: try a shorter one.
            if ids is not None and tuple(ids[: len(known)]) == known:
                kept = self._kept_by_samples(data, ids, follow)
                certain = self._certain(data, ids, follow, len(known), kept[0])
                likely = max(certain, kept[len(kept) // 2])
                return tuple(ids[len(known) : certain]), tuple(ids[certain:likely])
        return (), ()

    def _kept_by_samples(
        self, data: bytes, ids: list[int], follow: frozenset[int] | None
    ) -> list[int]:
        """Return how many of the tokens `ids` of `data` each sampled continuation keeps, sorted."""
        # What follows decides where the tokenizer cuts white space, for example.
        longer = [encode_bytes(self._tokenizer, data + after) for after in _samples(follow)]
        kept = sorted(common_prefix(ids, other) for other in longer if other is not None)
        return kept or [len(ids)]

    def _certain(
        self, data: bytes, ids: list[int], follow: frozenset[int] | None, least: int, most: int
    ) -> int:
        """Return how many of the tokens `ids` of `data`, `most` at most, nothing can change."""
        certain = most
        for p in range(len(data) - 1, max(-1, len(data) - self._longest), -1):
            if certain <= least:
                break
            if self._reaches_beyond(data[p:], follow):
                start = p
                while start and data[start] & 0xC0 == 0x80:  # back to the character's beginning
                    start -= 1
                before = encode_bytes(self._tokenizer, data[:start])
                if before is None:
                    return least
                same = common_prefix(ids, before)
                certain = min(certain, same if start == p else max(same - 1, 0))
        return certain

    def _reaches_beyond(self, prefix: bytes, follow: frozenset[int] | None) -> bool:
        """Return whether a token begins with `prefix` and a byte that can come behind it."""
        if follow is None:
            at = bisect_left(self._sorted, prefix + b"\0")
            return at < len(self._sorted) and self._sorted[at].startswith(prefix)
        at = bisect_left(self._sorted, prefix + b"\0")
        while at < len(self._sorted) and self._sorted[at].startswith(prefix):
            byte = self._sorted[at][len(prefix)]
            if byte in follow:
                return True
            if byte == 0xFF:
                return False
            at = bisect_left(self._sorted, prefix + bytes((byte + 1,)), at)
        return False


_Split = tuple[tuple[int, ...], tuple[int, ...]]
"""The tokens of a forced text: those that are certain, and those that likely follow."""


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many leading items two sequences share."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def _samples(follow: frozenset[int] | None) -> list[bytes]:
    """Return one possible next character of each kind that tokenizers treat alike."""
    out = []
    for kind in _KINDS:
        found = [b for b in kind if follow is None or b in follow]
        out += [bytes((b,)) for b in found[:1]]
    if follow is None or any(b >= 0x80 for b in follow):
        out.append("é".encode())
    return out


_KINDS = (
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    b"0123456789", b" ", b"\n\r", b"\t", b"'",
    b"!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~",
)  # fmt: skip
