"""JSON schemas made of others: `allOf`, `anyOf`, `oneOf`, `not`, `if`, dependencies.

HOST. Imports json_keywords, json_merge, json_refs and errors. Every combination is rewritten to
alternatives: schemas of which a value must fit one, in keywords that speak of values themselves.
What is left of `not` (`is_atom`) is for json_schema.py to take out of a language.
"""

from collections.abc import Callable
from typing import Any

from sgjax.errors import GrammarError
from sgjax.fsm.json_keywords import TYPES, VALIDATING, count_of, number_given, type_list
from sgjax.fsm.json_merge import Schema, are_disjoint, merge
from sgjax.fsm.json_refs import References

COMBINING = ("not", "anyOf", "oneOf", "if", "dependentSchemas", "dependentRequired",
             "dependencies", "allOf")  # fmt: skip
"""In the order in which they are rewritten: parts of `allOf` may bring any of the others, and two
of one keyword are kept apart by another `allOf`."""

Path = tuple[str, ...]
Inline = Callable[[Any], Any]
Break = Callable[[Schema, Any, Inline], list[Any]]
"""From a schema and the value of a keyword to alternatives for what breaks that keyword."""


def alternatives(keyword: str, schema: Schema, refs: References, path: Path) -> list[Any]:
    """Return schemas without a keyword of `COMBINING`, of which a value must fit one.

    Args:
        keyword: one that the schema has.
        schema: in plain Python.
        refs: resolves its references.
        path: the references on the way here.

    Raises:
        GrammarError: they cannot be written down; the message names the keyword.
    """
    rest = {k: v for k, v in schema.items() if k != keyword}
    value = schema[keyword]

    def inline(part: Any) -> Any:
        return refs.inline(part, path)

    match keyword:
        case "allOf":
            for part in value:
                rest = merge(rest, inline(part))
            return [rest]
        case "anyOf":
            if not any(k in VALIDATING for k in rest):
                return list(value)
            return [merge(rest, inline(part)) for part in value]
        case "oneOf":
            return _one_of(value, rest, inline)
        case "not":
            return [merge(rest, part) for part in broken(value, inline)]
        case "if":
            return _if(value, rest, inline)
    return _depending(keyword, value, rest, inline)


def _one_of(parts: list[Any], rest: Schema, inline: Inline) -> list[Any]:
    """Return each branch without the values that fit another one, too."""
    wholes = [merge(rest, inline(part)) for part in parts]
    ways = []
    for i, way in enumerate(wholes):
        for j, part in enumerate(parts):
            if i != j and not are_disjoint(wholes[i], wholes[j], inline):
                way = merge(way, {"not": part})
        ways.append(way)
    return ways


def _if(condition: Any, rest: Schema, inline: Inline) -> list[Any]:
    """Return what fits the condition and `then`, and what breaks it and fits `else`."""
    then, otherwise = rest.pop("then", None), rest.pop("else", None)
    if then is None and otherwise is None:
        return [rest]
    yes = merge(rest, inline(condition))
    noes = [merge(rest, no) for no in broken(condition, inline)]
    if then is not None:
        yes = merge(yes, inline(then))
    if otherwise is not None:
        noes = [merge(no, inline(otherwise)) for no in noes]
    return [yes, *noes]


def _depending(keyword: str, needs: Schema, rest: Schema, inline: Inline) -> list[Any]:
    """Return objects that lack the first property, or have it and what it needs."""
    if not needs:
        return [rest]
    (name, need), *others = needs.items()
    if others:
        rest = rest | {keyword: dict(others)}
    there = {"required": [name, *need]} if isinstance(need, list) else inline(need)
    return [
        merge(rest, {"properties": {name: False}}),
        merge(rest, merge({"required": [name]}, there)),
    ]


def broken(schema: Any, inline: Inline) -> list[Any]:
    """Return alternatives for the values that do not fit a schema.

    They may be fewer than all: an unwanted list has an unwanted first item, and nothing is done to
    break what is said of unlisted properties.

    Args:
        schema: in plain Python.
        inline: resolves a reference.

    Raises:
        GrammarError: no way to break it can be written down; the message names a keyword.
    """
    schema = inline(schema)
    if isinstance(schema, bool) or not schema:
        return [] if schema else [True]
    ways: list[Any] = []
    beyond: list[str] = []
    for keyword, value in schema.items():
        if is_atom({keyword: value}):
            ways.append({"not": {keyword: value}})
        elif keyword in _BREAK:
            ways += [way for way in _BREAK[keyword](schema, value, inline) if way is not False]
        elif keyword in VALIDATING:
            beyond.append(keyword)
    if not ways and beyond:
        raise GrammarError(
            f"json_schema keyword 'not' (also within oneOf, if) of {beyond[0]!r} is not supported; "
            "say which values are wanted"
        )
    return ways


def is_atom(schema: Any) -> bool:
    """Return whether `not` of a schema cannot be broken further, only taken out of a language."""
    names = {k for k in schema if k in VALIDATING} if isinstance(schema, dict) else set()
    if names in ({"enum"}, {"const"}):
        return all(_has_one_text(v) for v in schema.get("enum", [schema.get("const")]))
    return names == {"pattern"} or (names == {"multipleOf"} and schema["multipleOf"] == 1)


def _has_one_text(value: Any) -> bool:
    return isinstance(value, str | bool) or value is None or value in ([], {})


def _break_type(schema: Schema, value: Any, inline: Inline) -> list[Any]:
    refused = type_list(value)
    kept = [t for t in TYPES if t not in refused and t != "integer"]
    if "integer" not in refused:
        return [{"type": kept}] if kept else []
    kept.remove("number")
    return [{"type": kept}, {"type": "number", "not": {"multipleOf": 1}}]


def _break_values(schema: Schema, values: list[Any], inline: Inline) -> list[Any]:
    atoms = [v for v in values if _has_one_text(v)]
    numbers = sorted(v for v in values if not _has_one_text(v) and not isinstance(v, list | dict))
    nots = [{"not": {"enum": atoms}}] if atoms else []
    nots += [{"not": _as_parts(v)} for v in values if v and isinstance(v, list | dict)]
    between = [{"anyOf": _between(numbers)}] if numbers else []
    return [{"allOf": [*nots, *between]}]


def _between(numbers: list[Any]) -> list[Any]:
    """Return alternatives for all but some numbers in order."""
    ways: list[Any] = [{"type": [t for t in TYPES if t not in ("number", "integer")]}]
    for low, high in zip([None, *numbers], [*numbers, None], strict=True):
        bounds = {"exclusiveMinimum": low, "exclusiveMaximum": high}
        ways.append({"type": "number", **{k: v for k, v in bounds.items() if v is not None}})
    return ways


def _as_parts(value: Any) -> Schema:
    """Return a schema for a list, or for an object as far as its properties go."""
    if isinstance(value, list):
        items = [{"const": v} for v in value]
        return {"type": "array", "prefixItems": items, "minItems": len(items),
                "maxItems": len(items)}  # fmt: skip
    fits = {name: {"const": v} for name, v in value.items()}
    return {"type": "object", "properties": fits, "required": [*value]}


def _break_properties(schema: Schema, value: Schema, inline: Inline) -> list[Any]:
    return [
        {"type": "object", "properties": {name: way}, "required": [name]}
        for name, part in value.items()
        for way in broken(part, inline)
    ]


def _break_required(schema: Schema, value: list[str], inline: Inline) -> list[Any]:
    return [{"type": "object", "properties": {name: False}} for name in value]


def _break_first_items(schema: Schema, value: Any, inline: Inline) -> list[Any]:
    if not isinstance(value, list):  # `items` behind the first ones
        before = schema.get("prefixItems", [])
        value = [*[True] * len(before), value]
    return [
        {"type": "array", "prefixItems": [*[True] * at, way], "minItems": at + 1}
        for at, part in enumerate(value)
        for way in broken(part, inline)
    ]


def _break_if(schema: Schema, value: Any, inline: Inline) -> list[Any]:
    then, otherwise = schema.get("then", True), schema.get("else", True)
    return [{"allOf": [value, {"not": then}]}, {"allOf": [{"not": value}, {"not": otherwise}]}]


def _break_dependencies(schema: Schema, value: Schema, inline: Inline) -> list[Any]:
    ways = []
    for name, need in value.items():
        fits = {"required": need} if isinstance(need, list) else need
        ways.append({"type": "object", "required": [name], "allOf": [{"not": fits}]})
    return ways


def _beyond(kind: str, keyword: str, bound: str, step: int) -> Break:
    """Return how to break a count: by one more than the most, one fewer than the least."""

    def ways(schema: Schema, value: Any, inline: Inline) -> list[Any]:
        count = (count_of(schema, keyword) or 0) + step
        return [{"type": kind, bound: count}] if count >= 0 else []

    return ways


def _outside(keyword: str, bound: str) -> Break:
    """Return how to break a bound of numbers: on its other side."""

    def ways(schema: Schema, value: Any, inline: Inline) -> list[Any]:
        if isinstance(schema.get("exclusive" + keyword[0].upper() + keyword[1:]), bool):
            raise GrammarError(
                f"json_schema keyword 'not' of {keyword!r} with an exclusive bound of draft 4 is "
                "not supported; write the bound as a number"
            )
        return [{"type": "number", bound: number_given(schema, keyword)}]

    return ways


_BREAK: dict[str, Break] = {
    "type": _break_type,
    "enum": _break_values,
    "const": lambda schema, value, inline: _break_values(schema, [value], inline),
    "properties": _break_properties,
    "required": _break_required,
    "items": _break_first_items,
    "prefixItems": _break_first_items,
    "minLength": _beyond("string", "minLength", "maxLength", -1),
    "maxLength": _beyond("string", "maxLength", "minLength", 1),
    "minItems": _beyond("array", "minItems", "maxItems", -1),
    "maxItems": _beyond("array", "maxItems", "minItems", 1),
    "minimum": _outside("minimum", "exclusiveMaximum"),
    "maximum": _outside("maximum", "exclusiveMinimum"),
    "exclusiveMinimum": _outside("exclusiveMinimum", "maximum"),
    "exclusiveMaximum": _outside("exclusiveMaximum", "minimum"),
    "allOf": lambda schema, value, inline: [w for part in value for w in broken(part, inline)],
    "anyOf": lambda schema, value, inline: [{"allOf": [{"not": part} for part in value]}],
    "oneOf": lambda schema, value, inline: [
        {"allOf": [{"not": part} for part in value]},
        *({"allOf": [a, b]} for i, a in enumerate(value) for b in value[:i]),
    ],
    "if": _break_if,
    "dependencies": _break_dependencies,
    "dependentRequired": _break_dependencies,
    "dependentSchemas": _break_dependencies,
    "not": lambda schema, value, inline: [inline(value)],
}
