"""From a regex in the syntax of `re` to a tree of regular operations.

HOST. Imports charset, tree, errors and the standard library's own regex parser, so the syntax is
exactly Python's. Owns what of that syntax is regular: lookahead becomes an intersection with the
rest of the pattern; what is not regular, or would need to look back, is refused by name.

The language of a pattern is what `re.fullmatch` accepts, with ASCII classes unless told otherwise.
"""

import re
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from sgjax.errors import GrammarError
from sgjax.fsm.charset import CharSet, category, complement, ignore_case, normalise
from sgjax.fsm.tree import (
    ANYTHING,
    EMPTY,
    Alt,
    Both,
    Cat,
    Chars,
    Look,
    Node,
    Repeat,
    Without,
    matches_empty,
)

_MAX_UNROLLED = 8
"""Repeats of something with a lookahead inside are written out up to this count."""


def parse(pattern: str, *, unicode: bool = False) -> Node:
    """Parse a regex.

    Args:
        pattern: in the syntax of `re`.
        unicode: `\\w`, `\\d`, `\\s` and case are Unicode's; else ASCII's, as under `re.ASCII`.

    Returns:
        A tree without lookaheads.

    Raises:
        GrammarError: a syntax error, or something that is not regular; the message names it.
    """
    return _parse(pattern, 0 if unicode else re.ASCII, is_search=False)


def parse_search(pattern: str) -> Node:
    """Parse a regex for the texts in which it matches anywhere, as JSON Schema's `pattern` does.

    As there, classes are ASCII's and '$' is the end of the text alone.

    Raises:
        GrammarError: as `parse`.
    """
    return _parse(pattern, re.ASCII, is_search=True)


def _parse(pattern: str, flags: int, is_search: bool) -> Node:
    try:
        tree = _parser.parse(pattern, flags)
        flags = tree.state.flags
        converter = _Converter(flags, ends_strictly=is_search)
        if is_search:
            return _resolve(Cat((converter.unanchored(tree), ANYTHING)), EMPTY)
        return _resolve(converter.sequence(tree, at_start=True), EMPTY)
    except re.error as error:
        raise GrammarError(f"regex {_short(pattern)} is not valid: {error}") from None
    except (RecursionError, OverflowError):
        raise GrammarError(f"regex {_short(pattern)} is nested too deeply; simplify it") from None
    except GrammarError as error:
        raise GrammarError(f"regex {_short(pattern)}: {error}") from None
    except ValueError as error:  # inline flags that contradict each other, or ours
        raise GrammarError(
            f"regex {_short(pattern)}: {error}; classes are ASCII's "
            "unless the option `unicode: true` is set"
        ) from None


class _Converter:
    """Turn the standard library's parse tree into ours."""

    def __init__(self, flags: int, ends_strictly: bool) -> None:
        self._flags = flags
        self._ends_strictly = ends_strictly

    def unanchored(self, items: Any) -> Node:
        """Convert a sequence that may begin anywhere, unless it begins with '^'."""
        first: Any = items[0] if len(items) else (None, None)
        if first[0] is op.AT and first[1] in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
            return self.sequence(items, at_start=True)
        if len(items) == 1 and first[0] is op.BRANCH:
            return Alt(tuple(self.unanchored(branch) for branch in first[1][1]))
        if len(items) == 1 and first[0] is op.SUBPATTERN and not (first[1][1] or first[1][2]):
            return self.unanchored(first[1][3])
        return Cat((ANYTHING, self.sequence(items, at_start=False)))

    def sequence(self, items: Any, at_start: bool) -> Node:
        """Convert a sequence; `at_start` where nothing can have been read before it."""
        parts: list[Node] = []
        for code, arg in items:
            parts.append(self._item(code, arg, at_start))
            at_start = at_start and code in (op.AT, op.ASSERT, op.ASSERT_NOT)
        return parts[0] if len(parts) == 1 else Cat(tuple(parts))

    def _item(self, code: Any, arg: Any, at_start: bool) -> Node:
        if code in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN):
            return Chars(self._chars(code, arg))
        if code is op.BRANCH:
            return Alt(tuple(self.sequence(items, at_start) for items in arg[1]))
        if code is op.SUBPATTERN:
            _, add, drop, items = arg
            own = _Converter((self._flags | add) & ~drop, self._ends_strictly)
            return own.sequence(items, at_start)
        if code in (op.MAX_REPEAT, op.MIN_REPEAT):
            low, high, items = arg
            body = self.sequence(items, at_start and high == 1)
            return Repeat(body, low, None if high is op.MAXREPEAT else int(high))
        if code in (op.ASSERT, op.ASSERT_NOT):
            direction, items = arg
            if direction < 0:
                raise GrammarError("lookbehind is not supported; describe what comes before it")
            inner = self.sequence(items, at_start)
            return Look(Cat((inner, ANYTHING)), code is op.ASSERT)
        if code is op.AT:
            return self._anchor(arg, at_start)
        raise GrammarError(f"{_NAMES.get(code, str(code).lower())} not supported; rewrite without")

    def _anchor(self, where: Any, at_start: bool) -> Node:
        if where in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
            if at_start:
                return EMPTY
            raise GrammarError(
                "'^' or '\\A' is supported at the start of the pattern only; drop it"
            )
        if where is op.AT_END_STRING or (where is op.AT_END and self._ends_strictly):
            return Look(EMPTY, True)
        if where is op.AT_END:
            newline = Chars(((10, 10),))
            if self._flags & re.MULTILINE:
                return Look(Alt((EMPTY, Cat((newline, ANYTHING)))), True)
            return Look(Repeat(newline, 0, 1), True)
        raise GrammarError("'\\b' and '\\B' are not supported; describe the neighbours instead")

    def _chars(self, code: Any, arg: Any) -> CharSet:
        if code is op.ANY:
            newline = ((10, 10),)
            return complement(() if self._flags & re.DOTALL else newline)
        if code is not op.IN:
            arg = (
                [(op.LITERAL, arg)]
                if code is op.LITERAL
                else [(op.NEGATE, None), (op.LITERAL, arg)]
            )
        intervals: list[tuple[int, int]] = []
        negated = False
        for kind, value in arg:
            if kind is op.NEGATE:
                negated = True
            elif kind is op.LITERAL:
                intervals.append((value, value))
            elif kind is op.RANGE:
                intervals.append(value)
            else:
                intervals += self._category(value)
        ascii_only = bool(self._flags & re.ASCII)
        chars = normalise(intervals)
        if self._flags & re.IGNORECASE:
            chars = ignore_case(chars, ascii_only)
        return complement(chars) if negated else chars

    def _category(self, name: Any) -> CharSet:
        letter, positive = _CATEGORIES[name]
        chars = category(letter, bool(self._flags & re.ASCII))
        return chars if positive else complement(chars)


def _resolve(node: Node, rest: Node) -> Node:
    """Return `node` followed by `rest`, with the lookaheads in `node` applied to what follows."""
    if not _looks(node):
        return node if rest == EMPTY else Cat((node, rest))
    if isinstance(node, Look):
        ahead = _resolve(node.rest, EMPTY)
        if rest == EMPTY:  # a '$' at the end, most often
            return EMPTY if matches_empty(ahead) == node.positive else Alt(())
        return Both(rest, ahead) if node.positive else Without(rest, ahead)
    if isinstance(node, Cat):
        for part in reversed(node.parts):
            rest = _resolve(part, rest)
        return rest
    if isinstance(node, Alt):
        return Alt(tuple(_resolve(part, rest) for part in node.parts))
    assert isinstance(node, Repeat)
    if node.high is None or node.high > _MAX_UNROLLED:
        raise GrammarError(
            f"a lookahead or '$' inside a repeat is supported up to {_MAX_UNROLLED} times; move it "
            "out of the repeat"
        )
    for count in range(node.high, 0, -1):
        once = _resolve(node.body, rest)
        rest = once if count <= node.low else Alt((rest, once))
    return rest


def _looks(node: Node) -> bool:
    if isinstance(node, Look):
        return True
    if isinstance(node, Cat | Alt):
        return any(_looks(part) for part in node.parts)
    return isinstance(node, Repeat) and _looks(node.body)


def _short(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 80 else pattern[:77] + "...")


_CATEGORIES = {
    op.CATEGORY_DIGIT: ("d", True),
    op.CATEGORY_NOT_DIGIT: ("d", False),
    op.CATEGORY_SPACE: ("s", True),
    op.CATEGORY_NOT_SPACE: ("s", False),
    op.CATEGORY_WORD: ("w", True),
    op.CATEGORY_NOT_WORD: ("w", False),
}

_NAMES = {
    op.GROUPREF: "a backreference is",
    op.GROUPREF_IGNORE: "a backreference is",
    op.GROUPREF_EXISTS: "a conditional group (?(1)...) is",
    op.ATOMIC_GROUP: "an atomic group (?>...) is",
    op.POSSESSIVE_REPEAT: "a possessive repeat (like *+) is",
}
