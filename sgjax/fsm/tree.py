"""The tree of a regular language, and whether a text is in it.

HOST. Imports charset. Notations become such trees (`parse`, `json_schema`), `automaton` makes byte
automata of them; whoever asks of few short texts needs no automaton.
"""

from dataclasses import dataclass

from sgjax.fsm.charset import MAX_CODE_POINT, CharSet, contains, normalise


@dataclass(frozen=True)
class Chars:
    """One character out of a set."""

    chars: CharSet


@dataclass(frozen=True)
class Cat:
    """One after the other; without parts: the empty string."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True)
class Alt:
    """Any one of the parts; without parts: nothing at all."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True)
class Repeat:
    """`body` between `low` and `high` times; `high` None is without limit."""

    body: "Node"
    low: int
    high: int | None


@dataclass(frozen=True)
class Both:
    """What both match."""

    left: "Node"
    right: "Node"


@dataclass(frozen=True)
class Without:
    """What `left` matches and `right` does not."""

    left: "Node"
    right: "Node"


@dataclass(frozen=True)
class Members:
    """Some of the parts in their order, with separators between them: the members of an object.

    A node of its own, because spelt out with the others each part would occur once for every place
    that the first member can have.

    Attributes:
        parts: (part, whether it has to occur).
        separator: stands between any two.
        more: comes any number of times behind the parts, or None.
    """

    parts: "tuple[tuple[Node, bool], ...]"
    separator: "Node"
    more: "Node | None"


@dataclass(frozen=True)
class Look:
    """What follows, to the end of the text, is (not) in `rest`; no part of what `parse` returns."""

    rest: "Node"
    positive: bool


Node = Chars | Cat | Alt | Repeat | Both | Without | Members | Look

EMPTY = Cat(())
ANYTHING = Repeat(Chars(normalise([(0, MAX_CODE_POINT)])), 0, None)


def matches_empty(node: Node) -> bool:
    """Return whether the empty text is in the language of a tree."""
    match node:
        case Cat(parts):
            return all(matches_empty(part) for part in parts)
        case Alt(parts):
            return any(matches_empty(part) for part in parts)
        case Repeat(body, low, _):
            return low == 0 or matches_empty(body)
        case Both(left, right):
            return matches_empty(left) and matches_empty(right)
        case Without(left, right):
            return matches_empty(left) and not matches_empty(right)
        case _:
            return False


def matches_text(node: Node, value: str) -> bool:
    """Return whether a tree matches a text; for short ones: derivatives, without an automaton."""
    for char in value:
        node = _derivative(node, ord(char))
    return matches_empty(node)


def _derivative(node: Node, code: int) -> Node:
    """Return what must follow one character (J. Brzozowski, 1964)."""
    match node:
        case Chars(chars):
            return EMPTY if contains(chars, code) else Alt(())
        case Cat(parts):
            ways: list[Node] = []
            for at, part in enumerate(parts):
                first = _derivative(part, code)
                if first != Alt(()):
                    ways.append(Cat((first, *parts[at + 1 :])))
                if not matches_empty(part):
                    break
            return ways[0] if len(ways) == 1 else Alt(tuple(ways))
        case Alt(parts):
            found = [d for part in parts if (d := _derivative(part, code)) != Alt(())]
            return found[0] if len(found) == 1 else Alt(tuple(dict.fromkeys(found)))
        case Repeat(body, low, high):
            first = _derivative(body, code)
            if first == Alt(()) or high == 0:
                return Alt(())
            return Cat((first, Repeat(body, max(low - 1, 0), None if high is None else high - 1)))
        case Both(left, right):
            return Both(_derivative(left, code), _derivative(right, code))
        case Without(left, right):
            return Without(_derivative(left, code), _derivative(right, code))
        case _:
            raise AssertionError(f"{type(node).__name__} is no part of a parsed tree")
