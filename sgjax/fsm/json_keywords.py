"""The keywords of JSON Schema: which there are, which are refused, and what their values mean.

HOST. Imports errors.
"""

import math
from decimal import Decimal
from typing import Any

from sgjax.errors import GrammarError

REFUSED = (
    "contains", "minContains", "maxContains", "unevaluatedProperties",
    "unevaluatedItems", "contentEncoding", "contentMediaType", "contentSchema", "$dynamicRef",
    "$recursiveRef",
)  # fmt: skip

KEYWORDS: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "object": ("properties", "required", "additionalProperties", "patternProperties",
               "propertyNames", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems",
              "uniqueItems"),
}  # fmt: skip

_MAX_DIGITS = 400
"""More than any double has before the point; a schema of a few characters may ask for billions."""

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")

WIDE_FORMATS = {"int32", "int64", "float", "double"}
"""Formats of numbers in OpenAPI: annotations, because they say nothing of strings."""

VALIDATING = frozenset(
    (
        *REFUSED,
        *(word for words in KEYWORDS.values() for word in words),
        *("type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "$ref", "if", "then", "else"),
        *("dependencies", "dependentRequired", "dependentSchemas"),
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


def count_of(schema: dict[str, Any], keyword: str) -> int | None:
    """Return the value of a keyword that counts something; None where it is not given.

    Raises:
        GrammarError: it is no count.
    """
    if keyword not in schema:
        return None
    value = schema[keyword]
    is_count = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if not is_count or value < 0 or value != int(value):
        raise GrammarError(
            f"json_schema keyword {keyword!r} must be a count, 0 or more; got {value!r:.60}"
        )
    return int(value)


def number_given(schema: dict[str, Any], keyword: str) -> Decimal | None:
    """Return the value of a keyword that is a number, exactly; None where it is not given.

    Raises:
        GrammarError: it is no number, or has more digits than any use of it.
    """
    if keyword not in schema:
        return None
    value = schema[keyword]
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        raise GrammarError(f"json_schema keyword {keyword!r} must be a number; got {value!r:.60}")
    number = Decimal(value)
    if max(number.adjusted(), -int(number.as_tuple().exponent)) > _MAX_DIGITS:
        raise GrammarError(
            f"json_schema keyword {keyword!r} is supported up to {_MAX_DIGITS} digits before and "
            "behind the point; round it"
        )
    return number


def equal(a: Any, b: Any) -> bool:
    """Return whether two values are the same in JSON, where true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    return bool(a == b)


def plain(value: Any) -> Any:
    """Return a value with `Decimal` numbers as Python's own.

    Raises:
        GrammarError: one is beyond them.
    """
    if isinstance(value, Decimal):
        number = float(value)
        if not math.isfinite(number):
            raise GrammarError(f"json_schema: {value:.3e} is beyond a double; write it otherwise")
        return number
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value
