"""Numbers of JSON schemas as trees of regular operations: ranges and decimal places.

HOST. Imports json_text, json_keywords, json_merge's Schema, parse and errors.
"""

import math
from decimal import Decimal
from typing import Any

from sgjax.errors import GrammarError
from sgjax.fsm.json_keywords import number_given
from sgjax.fsm.json_merge import Schema
from sgjax.fsm.json_text import NOTHING, alt, cat, optional, text
from sgjax.fsm.parse import parse
from sgjax.fsm.tree import ANYTHING, EMPTY, Alt, Both, Cat, Chars, Node, Repeat, Without

DIGIT = Chars(((48, 57),))
_DIGITS = Repeat(DIGIT, 0, None)
_FRACTION = Cat((text("."), Repeat(DIGIT, 1, None)))
_NATURAL = Alt((text("0"), Cat((Chars(((49, 57),)), _DIGITS))))
_EXPONENT = parse("[eE][+-]?[0-9]+")
ANY_INTEGER = Cat((optional(text("-")), _NATURAL))
BROKEN_NUMBER = Cat((ANY_INTEGER, parse(r"\.[0-9]*[1-9][0-9]*")))
"""Numbers that are certainly not whole."""
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
    if not low.strip("0") and not high.strip("9"):  # without it, each digit would double the rest
        return Repeat(DIGIT, len(low), len(low))
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
    """Return the whole part and the decimals of a value >= 0, exactly."""
    whole, _, decimals = format(value, "f").partition(".")
    return int(whole), decimals.rstrip("0")


def number_of(kind: str, schema: Schema) -> Node:
    """Return the texts of the numbers that a schema's keywords allow.

    Args:
        kind: "integer" or "number".
        schema: its bounds and `multipleOf` are used.

    Raises:
        GrammarError: `multipleOf` is no power of ten.
    """
    low, open_low = _bound(schema, "minimum", "exclusiveMinimum", max)
    high, open_high = _bound(schema, "maximum", "exclusiveMaximum", min)
    places: int | None = None
    zeros = 0
    step = number_given(schema, "multipleOf")
    if step is not None:
        sign, digits, _ = step.as_tuple()
        if sign or digits[:1] != (1,) or any(digits[1:]):
            raise GrammarError(
                f"json_schema keyword 'multipleOf' is supported for powers of ten, got {step}"
            )
        places, zeros = max(-step.adjusted(), 0), max(step.adjusted(), 0)
    if kind == "integer" or zeros or places == 0:
        least = None if low is None else _whole(low, up=True, is_open=open_low)
        most = None if high is None else _whole(high, up=False, is_open=open_high)
        return integer(least, most, zeros)
    return number(low, high, open_low, open_high, places)


def _bound(schema: Schema, name: str, exclusive: str, tighter: Any) -> tuple[Decimal | None, bool]:
    """Return the bound of one side and whether it is excluded; draft 4 has a boolean for that."""
    closed = number_given(schema, name)
    if isinstance(schema.get(exclusive), bool):
        if closed is None and schema[exclusive]:
            raise GrammarError(
                f"json_schema keyword {exclusive!r}: true needs {name!r} beside it; give the bound"
            )
        return closed, schema[exclusive]
    opened = number_given(schema, exclusive)
    if opened is None:
        return closed, False
    if closed is None or tighter(closed, opened) == opened:
        return opened, True
    return closed, False


def _whole(value: Decimal, up: bool, is_open: bool) -> int:
    floor = math.floor(value)
    exact = value == floor
    if up:
        return floor + 1 if not exact or is_open else floor
    return floor - 1 if exact and is_open else floor
