"""Languages of JSON texts: strings, numbers and literals as trees of regular operations.

HOST. Imports parse's tree and charset. Owns how values are spelt; json_schema.py owns which values.
"""

import json
import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from sgjax.fsm.charset import MAX_CODE_POINT, CharSet, contains, difference, normalise
from sgjax.fsm.parse import ANYTHING, EMPTY, Alt, Both, Cat, Chars, Node, Repeat, Without, parse

NOTHING = Alt(())
_ALL = normalise([(0, MAX_CODE_POINT)])
_ESCAPED = normalise([(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C)])
_SHORT = {0x22: '"', 0x5C: "\\", 0x2F: "/", 8: "b", 12: "f", 10: "n", 13: "r", 9: "t"}


def text(value: str) -> Node:
    """Return the language of one text."""
    return cat(Chars(((ord(c), ord(c)),)) for c in value)


def cat(parts: Iterable[Node]) -> Node:
    """Return the parts one after the other."""
    kept = [part for part in parts if part != EMPTY]
    return kept[0] if len(kept) == 1 else Cat(tuple(kept))


def alt(parts: Iterable[Node]) -> Node:
    """Return any one of the parts."""
    kept = tuple(part for part in parts if part != NOTHING)
    return kept[0] if len(kept) == 1 else Alt(kept)


def optional(node: Node) -> Node:
    """Return the node or nothing."""
    return Repeat(node, 0, 1)


def string(values: Node) -> Node:
    """Return the JSON texts of the strings in a language."""
    return Cat((text('"'), _spelt(values), text('"')))


def any_string(low: int = 0, high: int | None = None) -> Node:
    """Return the JSON texts of the strings of some lengths, counted in characters."""
    return string(Repeat(Chars(_ALL), low, high))


def literal(value: Any, comma: Node, colon: Node, space: Node) -> Node:
    """Return the JSON texts of one value.

    Args:
        value: what `json.loads` gives.
        comma, colon: separators, with the white space around them.
        space: white space allowed just inside brackets.
    """
    if isinstance(value, str):
        return string(text(value))
    if isinstance(value, dict):
        pairs: list[Node] = [
            Cat((string(text(key)), colon, literal(item, comma, colon, space)))
            for key, item in value.items()
        ]
        return bracket("{}", pairs, comma, space)
    if isinstance(value, list):
        return bracket("[]", [literal(v, comma, colon, space) for v in value], comma, space)
    return text(json.dumps(value))


def bracket(kind: str, items: list[Node], comma: Node, space: Node) -> Node:
    """Return brackets around items with commas between them."""
    inner: list[Node] = []
    for item in items:
        inner += [comma, item] if inner else [item]
    return cat([text(kind[0]), space, *inner, space, text(kind[1])])


DIGIT = Chars(((48, 57),))
_DIGITS = Repeat(DIGIT, 0, None)
_FRACTION = Cat((text("."), Repeat(DIGIT, 1, None)))
_NATURAL = Alt((text("0"), Cat((Chars(((49, 57),)), _DIGITS))))
_EXPONENT = parse("[eE][+-]?[0-9]+")
ANY_INTEGER = Cat((optional(text("-")), _NATURAL))
ANY_NUMBER = Cat((ANY_INTEGER, optional(_FRACTION), optional(_EXPONENT)))


def integer(low: int | None, high: int | None, zeros: int = 0) -> Node:
    """Return the integers in a closed range that end in some number of zeros."""
    if low is None and high is None and not zeros:
        return ANY_INTEGER
    parts = []
    if high is None or high >= 0:
        parts.append(_naturals(max(low or 0, 0) if low is not None else 0, high))
    if low is None or low < 0:
        most = None if low is None else -low
        parts.append(Cat((text("-"), _naturals(max(1, -high if high is not None else 1), most))))
    whole = alt(parts)
    if zeros:
        ends = Alt((text("0"), Cat((ANYTHING, text("0" * zeros)))))
        whole = Both(whole, ends)
    return whole


def number(
    low: Decimal | None, high: Decimal | None, open_low: bool, open_high: bool, places: int | None
) -> Node:
    """Return the decimal numbers in a range.

    Args:
        low, high: bounds, None for none; without both, exponents are allowed too.
        open_low, open_high: whether a bound itself is excluded.
        places: decimals at most, None for any.
    """
    if low is None and high is None and places is None:
        return ANY_NUMBER
    fraction = _FRACTION if places is None else Cat((text("."), Repeat(DIGIT, 1, places)))
    plain = Cat((_NATURAL, optional(fraction))) if places != 0 else _NATURAL
    positive: Node = plain
    if low is not None and low >= 0:
        positive = Both(positive, _at_least(low, open_low))
    if high is not None:
        positive = NOTHING if high < 0 else Both(positive, _at_most(high, open_high))
    negative: Node = plain
    if low is not None:
        negative = NOTHING if low >= 0 else Both(negative, _at_most(-low, open_low))
    if high is not None and high <= 0:
        negative = Both(negative, _at_least(-high, open_high))
    minus = NOTHING if negative == NOTHING else Cat((text("-"), negative))
    return alt([positive, minus])


def _naturals(low: int, high: int | None) -> Node:
    """Return the integers from `low` >= 0 to `high`."""
    if high is not None and high < low:
        return NOTHING
    first = str(low)
    if high is None:
        longer = Cat((Chars(((49, 57),)), Repeat(DIGIT, len(first), None)))
        return alt([_same_length(first, "9" * len(first)), longer])
    parts = []
    for length in range(len(first), len(str(high)) + 1):
        least = max(low, 0 if length == 1 else 10 ** (length - 1))
        parts.append(_same_length(str(least), str(min(high, 10**length - 1))))
    return alt(parts)


def _same_length(low: str, high: str) -> Node:
    """Return the digit strings between two of one length, both included."""
    if not low:
        return EMPTY
    if low[0] == high[0]:
        return cat([text(low[0]), _same_length(low[1:], high[1:])])
    rest = len(low) - 1
    parts = [cat([text(low[0]), _same_length(low[1:], "9" * rest)])]
    if ord(high[0]) - ord(low[0]) > 1:
        between = Chars(((ord(low[0]) + 1, ord(high[0]) - 1),))
        parts.append(cat([between, Repeat(DIGIT, rest, rest)]))
    parts.append(cat([text(high[0]), _same_length("0" * rest, high[1:])]))
    return alt(parts)


def _at_least(bound: Decimal, is_open: bool) -> Node:
    """Return decimals >= bound >= 0 (> if open)."""
    whole, fraction = _split(bound)
    above = Cat((_naturals(whole + 1, None), optional(_FRACTION)))
    # The same whole part: the fraction must not be smaller, digit by digit.
    parts: list[Node] = []
    for at, digit in enumerate(fraction):
        if digit < "9":
            bigger = Chars(((ord(digit) + 1, 57),))
            parts.append(cat([text(fraction[:at]), bigger, _DIGITS]))
    nonzero = Cat((Repeat(text("0"), 0, None), Chars(((49, 57),)), _DIGITS))
    if is_open:
        parts.append(cat([text(fraction), nonzero]))
    elif fraction:
        parts.append(cat([text(fraction), _DIGITS]))
    tail: Node = cat([text("."), alt(parts)]) if parts else NOTHING
    if not is_open and not fraction:
        tail = optional(_FRACTION)
    return alt([above, cat([text(str(whole)), tail]) if tail != NOTHING else NOTHING])


def _at_most(bound: Decimal, is_open: bool) -> Node:
    """Return decimals <= bound, bound >= 0 (< if open)."""
    return Without(Cat((_NATURAL, optional(_FRACTION))), _at_least(bound, not is_open))


def _split(value: Decimal) -> tuple[int, str]:
    whole = math.floor(value)
    digits = format(value - whole, "f").partition(".")[2].rstrip("0")
    return whole, digits


def _spelt(node: Node) -> Node:
    """Return the JSON spellings of the strings of a language, quotes not included.

    Spelling is one-to-many and no text spells two strings, so it commutes with all operations.
    """
    match node:
        case Chars(chars):
            return _spelt_chars(chars)
        case Cat(parts):
            return Cat(tuple(_spelt(part) for part in parts))
        case Alt(parts):
            return Alt(tuple(_spelt(part) for part in parts))
        case Repeat(body, low, high):
            return Repeat(_spelt(body), low, high)
        case Both(left, right):
            return Both(_spelt(left), _spelt(right))
        case Without(left, right):
            return Without(_spelt(left), _spelt(right))
        case _:
            raise AssertionError(f"{type(node).__name__} is no part of a parsed tree")


def _spelt_chars(chars: CharSet) -> Node:
    plain = difference(chars, _ESCAPED)
    ways: list[Node] = [Chars(plain)] if plain else []
    short = normalise((ord(e), ord(e)) for c, e in _SHORT.items() if contains(chars, c))
    if short:
        ways.append(Cat((text("\\"), Chars(short))))
    control = [c for c in range(0x20) if contains(chars, c) and c not in _SHORT]
    if control:
        hexes = [text(f"{c:02x}") for c in control]
        ways.append(Cat((text("\\u00"), alt(hexes))))
    return ways[0] if len(ways) == 1 else Alt(tuple(ways))
