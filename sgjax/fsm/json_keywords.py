"""The keywords of JSON Schema: which there are, which are refused, and what their values mean.

HOST. Imports errors.
"""

from decimal import Decimal
from typing import Any

from sgjax.errors import GrammarError

REFUSED = (
    "uniqueItems", "contains", "minContains", "maxContains", "dependencies", "dependentRequired",
    "dependentSchemas", "if", "then", "else", "unevaluatedProperties", "unevaluatedItems",
    "contentEncoding", "contentMediaType", "contentSchema", "$dynamicRef", "$recursiveRef",
)  # fmt: skip

KEYWORDS: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "object": ("properties", "required", "additionalProperties", "patternProperties",
               "propertyNames", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems"),
}  # fmt: skip

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")

WIDE_FORMATS = {"int32", "int64", "float", "double"}
"""Formats of numbers in OpenAPI: annotations, because they say nothing of strings."""

VALIDATING = frozenset(
    (
        *REFUSED,
        *(word for words in KEYWORDS.values() for word in words),
        *("type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "$ref"),
    )
)
"""Keywords that say something of a value; others are annotations."""


def type_list(value: Any) -> list[str]:
    """Return the types that `type` names, without what another of them includes.

    Raises:
        GrammarError: one is no type of JSON.
    """
    types = list(value) if isinstance(value, list) else [value]
    for kind in types:
        if kind not in TYPES:
            raise GrammarError(f"json_schema keyword 'type': {kind!r} is no type of JSON")
    return [t for t in types if not (t == "integer" and "number" in types)]


def has_type(value: Any, types: list[str]) -> bool:
    """Return whether a value is of one of some types."""
    if isinstance(value, bool):
        return "boolean" in types
    if value is None:
        return "null" in types
    if isinstance(value, int | Decimal):
        return "number" in types or ("integer" in types and value % 1 == 0)
    if isinstance(value, str):
        return "string" in types
    return ("array" if isinstance(value, list) else "object") in types


def equal(a: Any, b: Any) -> bool:
    """Return whether two values are the same in JSON, where true is not 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def is_idle(keyword: str, value: Any) -> bool:
    """Return whether a keyword that is not supported asks for nothing."""
    if keyword == "uniqueItems":
        return value is False
    return keyword.startswith("depend") and value == {}


def plain(value: Any) -> Any:
    """Return a value with `Decimal` numbers as Python's own."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value
