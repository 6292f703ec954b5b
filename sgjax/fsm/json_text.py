"""Languages of JSON texts: strings and literals as trees of regular operations.

HOST. Imports tree and charset. Owns how values are spelt; json_schema.py owns which values.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sgjax.fsm.charset import MAX_CODE_POINT, CharSet, contains, difference, normalise
from sgjax.fsm.tree import EMPTY, Alt, Both, Cat, Chars, Node, Repeat, Without

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
    if high is not None and low > high:
        return NOTHING
    return string(Repeat(Chars(_ALL), low, high))


@dataclass(frozen=True)
class Marks:
    """What stands between values, with the white space around it.

    Attributes:
        comma: between items.
        colon: between a name and its value.
        space: just inside brackets.
    """

    comma: Node
    colon: Node
    space: Node


def literal(value: Any, marks: Marks) -> Node:
    """Return the JSON texts of one value, which is what `json.loads` gives."""
    if isinstance(value, str):
        return string(text(value))
    if isinstance(value, dict):
        pairs = [member(text(name), literal(item, marks), marks) for name, item in value.items()]
        return bracket("{}", separated(pairs, marks), marks)
    if isinstance(value, list):
        return bracket("[]", separated([literal(v, marks) for v in value], marks), marks)
    return text(json.dumps(value))


def different(items: Node, item: Node, values: list[Node], marks: Marks) -> Node:
    """Return the lists in which none of some values comes twice.

    Args:
        items: the lists, without brackets.
        item: any item.
        values: texts of single values.
        marks: punctuation.
    """
    before = Repeat(Cat((item, marks.comma)), 0, None)
    behind = Repeat(Cat((marks.comma, item)), 0, None)
    for value in values:
        items = Without(items, Cat((before, value, marks.comma, before, value, behind)))
    return items


def member(name: Node, value: Node, marks: Marks) -> Node:
    """Return the members of an object whose names, not spelt yet, and values are given."""
    return Cat((string(name), marks.colon, value))


def separated(items: Sequence[Node], marks: Marks) -> Node:
    """Return items with commas between them."""
    rest = [part for item in items[1:] for part in (marks.comma, item)]
    return cat([*items[:1], *rest])


def bracket(kind: str, inner: Node, marks: Marks) -> Node:
    """Return brackets around what is given."""
    return cat([text(kind[0]), marks.space, inner, marks.space, text(kind[1])])


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


_PERCENT = "|%[0-9A-Fa-f]{2}"
_NAME = rf"([A-Za-z0-9._~!$&'()*+,;=@-]{_PERCENT})"
_PATH = rf"([A-Za-z0-9._~!$&'()*+,;=:@-]{_PERCENT})"
_QUERY = rf"([A-Za-z0-9._~!$&'()*+,;=:@/?-]{_PERCENT})"
_REST = rf"(\?{_QUERY}*)?(#{_QUERY}*)?"

FORMATS = {
    "date": r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])|\d{4}-(0[13-9]|1[0-2])-(29|30)"
    r"|\d{4}-(0[13578]|1[02])-31|(\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
    r"-02-29",
    "time": r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "ipv4": r"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)",
    "email": r"[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*@([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\.)+"
    r"[A-Za-z]{2,}",
    "hostname": r"(?=.{1,253}$)([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)"
    r"(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*",
    "uri": rf"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._~-]+(:\d{{1,5}})?(/{_PATH}*)*{_REST}",
    "uri-reference": rf"/?({_NAME}+(/{_PATH}*)*)?{_REST}",
}
FORMATS["uri-reference"] = f"({FORMATS['uri']})|{FORMATS['uri-reference']}"
FORMATS["date-time"] = f"({FORMATS['date']})T{FORMATS['time']}"
"""Texts of each format, perhaps not all of them."""
