"""Sets of code points as sorted intervals, and what `re` means by its classes and by ignoring case.

Owns the one definition of `\\w`, `\\d`, `\\s` and of case in sgjax: exactly the standard library's,
read off it by running it over all code points once. Imports the standard library only.
"""

import _sre  # type: ignore[import-not-found]
import bisect
import functools
import re
from collections.abc import Iterable
from re import _casefix  # type: ignore[attr-defined]

MAX_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
"""Have no UTF-8 form, so no set here contains them."""

CharSet = tuple[tuple[int, int], ...]
"""Sorted, disjoint, non-adjacent closed intervals of code points."""


def normalise(intervals: Iterable[tuple[int, int]]) -> CharSet:
    """Return the union of closed intervals, without surrogates."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(_without_surrogates(intervals)):
        if out and low <= out[-1][1] + 1:
            if high > out[-1][1]:
                out[-1] = (out[-1][0], high)
        else:
            out.append((low, high))
    return tuple(out)


def complement(chars: CharSet) -> CharSet:
    """Return all code points that are not in `chars`."""
    gaps, start = [], 0
    for low, high in chars:
        if low > start:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= MAX_CODE_POINT:
        gaps.append((start, MAX_CODE_POINT))
    return normalise(gaps)


def contains(chars: CharSet, code: int) -> bool:
    """Return whether a code point is in the set."""
    at = bisect.bisect_right(chars, (code, MAX_CODE_POINT + 1)) - 1
    return at >= 0 and chars[at][0] <= code <= chars[at][1]


@functools.cache
def category(letter: str, ascii_only: bool) -> CharSet:
    """Return the set of `\\d`, `\\w` or `\\s`.

    Args:
        letter: d, w or s.
        ascii_only: as under `re.ASCII`.
    """
    text = _all_ascii() if ascii_only else _all_characters()
    runs = re.finditer(rf"\{letter}+", text, re.ASCII if ascii_only else re.UNICODE)
    # Position i holds code point i, surrogates included, so runs are intervals.
    return normalise((run.start(), run.end() - 1) for run in runs)


def difference(chars: CharSet, others: CharSet) -> CharSet:
    """Return what is in `chars` and not in `others`."""
    return complement(normalise([*complement(chars), *others]))


def ignore_case(chars: CharSet, ascii_only: bool) -> CharSet:
    """Return what a literal or a class matches under `re.IGNORECASE`.

    `re` lowers both sides, and knows a few letters more that share an upper case.
    """
    lowering = _ascii_lowering() if ascii_only else _lowering()
    more = {} if ascii_only else _casefix._EXTRA_CASES
    upper = normalise((c, c) for c in lowering)
    wanted = [(low, low) for c, low in lowering.items() if contains(chars, c)]
    wanted = list(normalise([*difference(chars, upper), *wanted]))
    wanted += [(c, c) for low, cs in more.items() if contains(tuple(wanted), low) for c in cs]
    lowered = normalise(wanted)
    matching = [(c, c) for c, low in lowering.items() if contains(lowered, low)]
    return normalise([*difference(lowered, upper), *matching])


@functools.cache
def _lowering() -> dict[int, int]:
    """Return the code points that `re` lowers to another one."""
    lower = _sre.unicode_tolower
    return {c: low for c in range(MAX_CODE_POINT + 1) if (low := lower(c)) != c}


@functools.cache
def _ascii_lowering() -> dict[int, int]:
    return {c: c | 0x20 for c in range(0x41, 0x5B)}


@functools.cache
def _all_characters() -> str:
    return "".join(map(chr, range(MAX_CODE_POINT + 1)))


@functools.cache
def _all_ascii() -> str:
    return "".join(map(chr, range(128)))


def _without_surrogates(intervals: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    first, last = SURROGATES
    for low, high in intervals:
        if high < first or low > last:
            yield low, high
            continue
        if low < first:
            yield low, first - 1
        if high > last:
            yield last + 1, high
