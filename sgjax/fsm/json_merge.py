"""Combining JSON schemas: what two allow together, and whether any value fits both.

HOST. Imports json_keywords and errors. Works on plain Python values, references resolved by the
caller.
"""

from collections.abc import Callable
from typing import Any

from sgjax.errors import GrammarError
from sgjax.fsm.json_keywords import equal

Schema = dict[str, Any]

_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")


def merge(a: Any, b: Any) -> Any:
    """Return a schema for the values that fit both.

    Raises:
        GrammarError: they cannot be written as one schema; the message names the keyword.
    """
    if a is False or b is False:
        return False
    if a is True or a == {}:
        return b
    if b is True or b == {}:
        return a
    (a, if_a), (b, if_b) = _apart(a), _apart(b)
    out = a | (if_a or if_b)
    if if_a and if_b:
        out["allOf"] = [*a.get("allOf", []), if_b]
    for one, other in ((a, b), (b, a)):
        _check_properties(one, other)
        _check_items(one, other)
    for key, value in b.items():
        if key not in out or equal(out[key], value):
            out[key] = value
        elif key == "const":
            return False
        elif key == "type":
            out[key] = _common_types(out[key], value)
            if not out[key]:
                return False
        elif key == "properties":
            out[key] = {
                name: merge(out[key].get(name, True), value.get(name, True))
                for name in [*out[key], *(n for n in value if n not in out[key])]
            }
        elif key == "required":
            out[key] = list(dict.fromkeys([*out[key], *value]))
        elif key == "uniqueItems":
            out[key] = True
        elif key == "enum":
            out[key] = [v for v in out[key] if any(equal(v, w) for w in value)]
        elif key in _UPPER + _LOWER and isinstance(value, bool) != isinstance(out[key], bool):
            raise GrammarError(
                f"json_schema keyword {key!r} is once a number and once a boolean (draft 4) for "
                "one value; write it in one way"
            )
        elif key in _UPPER and not isinstance(value, bool):
            out[key] = min(out[key], value)
        elif key in _LOWER or key in _UPPER:  # of two booleans the stricter one is right, too
            out[key] = max(out[key], value)
        elif key in ("items", "additionalProperties", "propertyNames"):
            out[key] = merge(out[key], value)
        elif key == "allOf":
            out[key] = [*out[key], *value]
        elif key in ("anyOf", "oneOf", "not", *_DEPENDENCIES):
            out["allOf"] = [*out.get("allOf", []), {key: value}]
        elif key in _CONFLICTING:
            raise GrammarError(
                f"json_schema keyword {key!r} is given twice for one value (by allOf, anyOf, oneOf "
                "or $ref) and cannot be combined; write it once"
            )
    return out


_DEPENDENCIES = ("dependencies", "dependentRequired", "dependentSchemas")
_CONDITION = ("if", "then", "else")
_CONFLICTING = ("pattern", "format", "multipleOf", "patternProperties", "prefixItems",
                "additionalItems")  # fmt: skip


def _apart(schema: Schema) -> tuple[Schema, Schema]:
    """Return a schema without `if`, `then` and `else`, and these, where they mean something."""
    condition = {k: schema[k] for k in _CONDITION if k in schema and "if" in schema}
    return {k: v for k, v in schema.items() if k not in _CONDITION}, condition


def are_disjoint(a: Any, b: Any, inline: Callable[[Any], Any], depth: int = 4) -> bool:
    """Return whether certainly no value fits two schemas.

    Args:
        a, b: schemas.
        inline: resolves a reference.
        depth: levels of properties that are looked into.
    """
    a, b = inline(a), inline(b)
    if a is False or b is False:
        return True
    if not isinstance(a, dict) or not isinstance(b, dict) or depth == 0:
        return False
    for one, other in ((a, b), (b, a)):
        for keyword in ("anyOf", "oneOf"):
            if keyword in one:
                parts = one[keyword]
                if all(are_disjoint(part, other, inline, depth - 1) for part in parts):
                    return True
    if "type" in a and "type" in b and not _common_types(a["type"], b["type"]):
        return True
    values_a, values_b = _values(a), _values(b)
    if values_a is not None and values_b is not None:
        return not any(v == w for v in values_a for w in values_b)
    for values, other in ((values_a, b), (values_b, a)):
        if values is not None and "type" in other:
            types = other["type"] if isinstance(other["type"], list) else [other["type"]]
            if not any(_TYPE_NAMES.get(type(v), "number") in _widened(types) for v in values):
                return True
    return _objects_differ(a, b, inline, depth) or _objects_differ(b, a, inline, depth)


def _objects_differ(a: Schema, b: Schema, inline: Callable[[Any], Any], depth: int) -> bool:
    """Return whether a property that `a` requires cannot be as `b` wants it; for objects alone."""
    if a.get("type") != "object" and b.get("type") != "object":
        return False
    for name in a.get("required", []):
        mine = a.get("properties", {}).get(name, True)
        theirs = b.get("properties", {})
        if name not in theirs:
            closed = b.get("additionalProperties") is False and not b.get("patternProperties")
            if closed:
                return True
            continue
        if are_disjoint(mine, theirs[name], inline, depth - 1):
            return True
    return False


def _check_properties(one: Schema, other: Schema) -> None:
    """Refuse to merge objects of which one says of unlisted ones what the other lists."""
    if one.get("additionalProperties", True) in (True, {}):
        return
    if any(
        part is not False and name not in one.get(keyword, {})
        for keyword in ("properties", "patternProperties")
        for name, part in other.get(keyword, {}).items()
    ):
        raise GrammarError(
            "json_schema keyword 'additionalProperties' beside allOf, anyOf, oneOf or $ref "
            "that list other properties is not supported; list all in one place"
        )


def _check_items(one: Schema, other: Schema) -> None:
    """Refuse to merge arrays of which one says of all items what the other says of the later."""
    for keyword in ("prefixItems", "items"):
        first = one.get(keyword)
        if isinstance(first, list) and first != other.get(keyword) and "items" in other:
            raise GrammarError(
                f"json_schema keyword {keyword!r} as a list beside allOf, anyOf, oneOf or $ref "
                "that speak of other items is not supported; list all in one place"
            )


def _common_types(a: Any, b: Any) -> list[str]:
    left = a if isinstance(a, list) else [a]
    right = b if isinstance(b, list) else [b]
    common = [t for t in left if t in right]
    if ("integer" in left and "number" in right) or ("number" in left and "integer" in right):
        common = [*(t for t in common if t not in ("integer", "number")), "integer"]
    return common


def _values(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _widened(types: list[str]) -> set[str]:
    return {"number" if t == "integer" else t for t in types}


_TYPE_NAMES = {
    str: "string", list: "array", dict: "object", bool: "boolean", type(None): "null",
}  # fmt: skip
