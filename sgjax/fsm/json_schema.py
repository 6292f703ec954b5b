"""JSON Schema to a regular language: the finite, non-recursive subset.

HOST. Imports its neighbours (json_*, parse, tree) and errors. The texts are a subset of all valid:
properties come in the schema's order, white space is bounded, numbers with bounds have no exponent.
So what is generated is always valid; keywords that cannot be honoured are refused by name. Unknown
keywords are annotations, as the standard says.
"""

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from sgjax.errors import GrammarError
from sgjax.fsm import json_text as jt
from sgjax.fsm.json_combine import COMBINING, alternatives, is_atom
from sgjax.fsm.json_keywords import (
    KEYWORDS,
    REFUSED,
    TYPES,
    VALIDATING,
    WIDE_FORMATS,
    count_of,
    equal,
    has_type,
    plain,
    type_list,
)
from sgjax.fsm.json_merge import Schema, merge
from sgjax.fsm.json_numbers import ANY_NUMBER, BROKEN_NUMBER, number_of
from sgjax.fsm.json_object import Objects
from sgjax.fsm.json_refs import References
from sgjax.fsm.parse import parse, parse_search
from sgjax.fsm.tree import EMPTY, Both, Cat, Node, Repeat, Without

_MOST_DIFFERENT = 8
"""Values of which a list may hold each once: an automaton knows all sets of them."""

WhitespaceKind = Literal["compact", "fixed", "bounded"]


@dataclass(frozen=True)
class JsonStyle:
    """How JSON is written.

    Attributes:
        whitespace: `compact` (none), `fixed` (one space behind comma and colon, as `json.dumps`
            writes) or `bounded` (up to `most` characters wherever JSON allows some).
        most: see there.
        depth: levels of nesting in values of which the schema says nothing.
        extra: generate properties beyond the listed ones too, where the schema allows them.
    """

    whitespace: WhitespaceKind = "bounded"
    most: int = 2
    depth: int = 2
    extra: bool = False


def schema_to_tree(source: str, style: JsonStyle) -> Node:
    """Return the language of the JSON texts that a schema describes.

    Args:
        source: the JSON text of the schema.
        style: how they are written.

    Raises:
        GrammarError: the schema is broken, or uses what cannot be honoured; the message names it.
    """
    try:
        schema = json.loads(source, parse_float=Decimal, parse_constant=_no_number)
    except ValueError as error:
        raise GrammarError(f"json_schema is not valid JSON: {error}; give its JSON text") from None
    except RecursionError:
        raise GrammarError("json_schema is nested too deeply; simplify it") from None
    try:
        return _Converter(schema, style).value(schema, ())
    except RecursionError:
        raise GrammarError("json_schema is nested too deeply; simplify it") from None
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        if isinstance(error, GrammarError):
            raise
        raise GrammarError(f"json_schema is malformed: {error}; check it") from None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _marks(style: JsonStyle) -> jt.Marks:
    blank = Repeat(parse(r"[ \n\t]"), 0, style.most)
    space = blank if style.whitespace == "bounded" else EMPTY
    behind = jt.text(" ") if style.whitespace == "fixed" else space
    return jt.Marks(Cat((space, jt.text(","), behind)), Cat((space, jt.text(":"), behind)), space)


class _Converter:
    """Convert the parts of one schema."""

    def __init__(self, root: Any, style: JsonStyle) -> None:
        self._refs = References(root)
        self._style = style
        self._marks = _marks(style)
        self._objects = Objects(self.value, self._refs, self._marks, style.extra)
        self._any: dict[int, Node] = {}

    def value(self, schema: Any, path: tuple[str, ...]) -> Node:
        """Return the texts of the values that a schema allows.

        Args:
            schema: a schema in plain Python.
            path: the references on the way here, to find recursion.
        """
        self._refs.count_parts()
        if schema is True or schema == {}:
            return self._anything(self._style.depth)
        if schema is False:
            return jt.NOTHING
        if not isinstance(schema, dict):
            raise GrammarError(f"a schema must be an object or a boolean, got {schema!r:.60}")
        for keyword in REFUSED:
            if keyword in schema:
                raise GrammarError(f"json_schema keyword {keyword!r} is not supported; remove it")
        self._refs.check_resource(schema)
        if "$ref" in schema:
            return self._reference(schema, path)
        if "not" in schema and is_atom(part := self._refs.inline(schema["not"], path)):
            return self._but({k: v for k, v in schema.items() if k != "not"}, part, path)
        for keyword in COMBINING:
            if keyword in schema:
                ways = alternatives(keyword, schema, self._refs, path)
                return jt.alt([self.value(way, path) for way in ways])
        if "enum" in schema or "const" in schema:
            return self._listed(schema, path)
        return jt.alt([self._typed(kind, schema, path) for kind in self._types(schema)])

    def _reference(self, schema: Schema, path: tuple[str, ...]) -> Node:
        name = schema["$ref"]
        if name in path:
            raise GrammarError(f"json_schema keyword '$ref': {name!r} is recursive; unroll it")
        target = self._refs.resolve(name)
        rest = {k: v for k, v in schema.items() if k != "$ref"}
        if any(k in VALIDATING for k in rest):
            target = merge(self._refs.inline(target, (*path, name)), rest)
        return self.value(target, (*path, name))

    def _but(self, schema: Schema, part: Schema, path: tuple[str, ...]) -> Node:
        """Return the texts of a schema that are none of an atom of `not`."""
        if "pattern" in part:  # only strings can break it
            strings = self.value(merge(schema, {"type": "string"}), path)
            return Without(strings, jt.string(parse_search(part["pattern"])))
        if "multipleOf" in part:
            return Both(self.value(merge(schema, {"type": "number"}), path), BROKEN_NUMBER)
        values = part["enum"] if "enum" in part else [part["const"]]
        return Without(self.value(schema, path), jt.alt([self._literal(v) for v in values]))

    def _listed(self, schema: Schema, path: tuple[str, ...]) -> Node:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        if not isinstance(values, list):
            raise GrammarError("json_schema keyword 'enum' must be a list")
        self._refs.count_parts(len(values))
        if "enum" in schema and "const" in schema:
            values = [v for v in values if equal(v, schema["const"])]
        rest = {k: v for k, v in schema.items() if k not in ("enum", "const")}
        if set(rest) & set(VALIDATING) <= {"type"}:
            types = type_list(rest.get("type", list(TYPES)))
            return jt.alt([self._literal(v) for v in values if has_type(v, types)])
        allowed = self.value(rest, path)
        return Both(jt.alt([self._literal(v) for v in values]), allowed)

    def _literal(self, value: Any) -> Node:
        return jt.literal(plain(value), self._marks)

    def _types(self, schema: Schema) -> list[str]:
        """Return the types of a schema; where it names none, the one that its keywords are for."""
        if "type" in schema:
            return type_list(schema["type"])
        found = [kind for kind, words in KEYWORDS.items() if any(w in schema for w in words)]
        return found or ["object", "array", "string", "number", "boolean", "null"]

    def _typed(self, kind: str, schema: Schema, path: tuple[str, ...]) -> Node:
        if kind == "string":
            return self._string(schema)
        if kind in ("number", "integer"):
            return number_of(kind, schema)
        if kind == "boolean":
            return jt.alt([jt.text("true"), jt.text("false")])
        if kind == "null":
            return jt.text("null")
        return self._array(schema, path) if kind == "array" else self._objects.texts(schema, path)

    def _string(self, schema: Schema) -> Node:
        parts = []
        low, high = count_of(schema, "minLength") or 0, count_of(schema, "maxLength")
        if low or high is not None:
            parts.append(jt.any_string(low, high))
        if "pattern" in schema:
            parts.append(jt.string(parse_search(schema["pattern"])))
        name = schema.get("format")
        if name is not None and name not in WIDE_FORMATS:
            if name not in jt.FORMATS:
                raise GrammarError(
                    f"json_schema keyword 'format': {name!r} is not supported; supported are "
                    f"{', '.join(sorted(jt.FORMATS))}"
                )
            parts.append(jt.string(parse(jt.FORMATS[name])))
        node = parts[0] if parts else jt.any_string()
        for part in parts[1:]:
            node = Both(node, part)
        return node

    def _array(self, schema: Schema, path: tuple[str, ...]) -> Node:
        items, first = schema.get("items", True), schema.get("prefixItems", [])
        if isinstance(items, list):  # up to draft 2019-09
            items, first = schema.get("additionalItems", True), items
        low, high = count_of(schema, "minItems") or 0, count_of(schema, "maxItems")
        fixed = [self.value(s, path) for s in first]
        rest = jt.NOTHING if items is False else self.value(items, path)
        most = len(fixed) if rest == jt.NOTHING else None
        if high is not None:
            most = high if most is None else min(high, most)
        if most is not None and low > most:
            return jt.NOTHING
        tail = self._items_after(fixed, rest, low, most, 0)
        if schema.get("uniqueItems", False) is not False and most != 1:
            tail = jt.different(tail, rest, self._different(schema, path), self._marks)
        return jt.bracket("[]", tail, self._marks)

    def _items_after(
        self, fixed: list[Node], rest: Node, low: int, most: int | None, at: int
    ) -> Node:
        """Return the items from index `at` on, each but the first behind a comma."""
        comma = self._marks.comma if at else EMPTY
        if most is not None and at >= most:
            return EMPTY
        if at < len(fixed) or at == 0:
            item = fixed[at] if at < len(fixed) else rest
            here = jt.cat([comma, item, self._items_after(fixed, rest, low, most, at + 1)])
            return here if at < low else jt.optional(here)
        more = None if most is None else most - at
        return Repeat(jt.cat([comma, rest]), max(low - at, 0), more)

    def _different(self, schema: Schema, path: tuple[str, ...]) -> list[Node]:
        """Return the texts of the values that the items of a list of different ones may have."""
        items = self._refs.inline(schema.get("items", True), path)
        listed = isinstance(items, dict) and ("enum" in items or "const" in items)
        values = items.get("enum", [items.get("const")]) if listed else None
        if values is None or len(values) > _MOST_DIFFERENT or "prefixItems" in schema:
            raise GrammarError(
                f"json_schema keyword 'uniqueItems' is supported for up to {_MOST_DIFFERENT} "
                "listed values (items: enum), or at most one item; list them, or remove it"
            )
        return [self._literal(value) for value in values]

    def _anything(self, depth: int) -> Node:
        """Return the texts of values of any kind, nested to some depth."""
        if depth not in self._any:
            ways: list[Node] = [jt.any_string(), ANY_NUMBER]
            ways += [jt.text(word) for word in ("true", "false", "null")]
            if depth:
                inner = self._anything(depth - 1)
                member = Cat((jt.any_string(), self._marks.colon, inner))
                for kind, item in (("[]", inner), ("{}", member)):
                    more = Repeat(Cat((self._marks.comma, item)), 0, None)
                    ways.append(jt.bracket(kind, jt.optional(Cat((item, more))), self._marks))
            else:
                ways += [jt.text("[]"), jt.text("{}")]
            self._any[depth] = jt.alt(ways)
        return self._any[depth]
