"""Schemas made of others: what is matched is valid by `jsonschema`, and what fits is matched."""

import json
import random

import pytest

from sgjax.errors import GrammarError
from sgjax.fsm.json_schema import JsonStyle
from tests.fsm.test_json_schema import language

jsonschema = pytest.importorskip("jsonschema")

VALUES = [
    None, True, False, 0, 1, 2, -1, 1.5, "", "a", "ab", "b", [], [1], ["a"], [1, "a"], [1, 1],
    [[1]], [True], {}, {"a": 1}, {"a": True}, {"a": "b"}, {"b": None}, {"a": 1, "b": 2},
    {"a": {"a": 1}}, {"c": 1},
]  # fmt: skip
STYLE = JsonStyle("fixed", depth=1, extra=True)

ONE_OF_TWO = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
}
CHOICE = {
    "type": "object",
    "properties": {"a": {"enum": [1, "b"]}, "b": {"type": "integer"}},
    "required": ["a"],
    "if": {"properties": {"a": {"const": 1}}},
    "then": {"required": ["b"]},
    "else": {"properties": {"b": False}},
}


def fitting(schema) -> list:
    """Return which of the values a schema's language has."""
    dfa = language(schema, STYLE)
    return [value for value in VALUES if dfa.matches(json.dumps(value))]


@pytest.mark.parametrize(
    "schema",
    [
        ONE_OF_TWO,
        CHOICE,
        {"oneOf": [{"type": "number", "minimum": 1}, {"type": "integer", "maximum": 1},
                   {"type": "string", "minLength": 2}, {"type": ["string", "null"]}]},
        {"type": "string", "oneOf": [{"pattern": "a"}, {"pattern": "b"}]},
        {"allOf": [{"anyOf": [{"const": 1}, {"const": "a"}, {"const": True}]},
                   {"anyOf": [{"type": "boolean"}, {"const": "a"}]}]},
        {"not": {"type": "integer"}, "type": "number"},
        {"not": {"type": ["integer", "null"]}, "type": ["number", "null", "string"]},
        {"not": {"const": 1}, "type": ["integer", "boolean"]},
        {"not": {"enum": [{"a": True}, [1]]}, "type": ["object", "array"], "required": ["a"]},
        {"not": {"enum": ["a", 1, True]}, "enum": ["a", "b", 1, 2, True, False]},
        {"not": {"items": {"type": "integer"}}, "type": "array", "maxItems": 1},
        {"not": {"anyOf": [{"type": "object"}, {"type": ["array", "number"]}, {"minLength": 1}]}},
        {"not": {"oneOf": [{"minimum": 1}, {"maximum": 1}]}, "type": "integer"},
        {"not": {"if": {"const": 1}, "then": False, "else": {"minimum": 2}}, "type": "integer"},
        {"not": {"dependentRequired": {"a": ["b"]}}},
        {"type": "object", "dependentRequired": {"a": ["b"]}},
        {"type": "object", "dependentSchemas": {"b": {"properties": {"b": {"type": "null"}}}}},
        {"type": "array", "items": {"enum": [1, "a", [1]]}, "uniqueItems": True},
        {"type": "array", "maxItems": 1, "allOf": [{"uniqueItems": True}, {"uniqueItems": False}]},
        {"type": "object", "minProperties": 1},
        {"type": "object", "maxProperties": 0},
        {"enum": [1, 2], "allOf": [{"enum": [True, 2]}]},
        {"enum": [[1], [True]], "allOf": [{"enum": [[True]]}]},
        {"allOf": [{"if": {"minimum": 1}, "then": {"maximum": 1}}, {"type": "integer"},
                   {"if": {"maximum": 0}, "then": {"minimum": 0}}]},
    ],
)  # fmt: skip
def test_what_fits_is_matched_and_nothing_else(schema) -> None:
    valid = jsonschema.Draft202012Validator(schema).is_valid
    assert fitting(schema) == [value for value in VALUES if valid(value)]


def test_dependencies_of_draft_7_are_those_of_later_drafts() -> None:
    needs = {"a": ["b"], "b": {"properties": {"b": {"type": "integer"}}}}
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "dependencies": needs}
    valid = jsonschema.Draft7Validator(schema).is_valid
    assert fitting(schema) == [value for value in VALUES if valid(value)]


@pytest.mark.parametrize("stray", ["then", "else"])
def test_then_and_else_without_if_mean_nothing(stray) -> None:
    schema = {"allOf": [{stray: False}, {"if": {"const": 1}, "then": {"const": 1}}]}
    assert fitting({"type": "integer", **schema}) == [0, 1, 2, -1]


def random_leaf(rng):
    return rng.choice(
        [
            {"type": rng.choice(["string", "integer", "number", "null", ["object", "string"]])},
            {"const": rng.choice(VALUES)},
            {"enum": rng.sample(VALUES, 3)},
            {"pattern": rng.choice(["a", "^b"])},
            {rng.choice(["minLength", "maxLength", "minItems"]): rng.randrange(3)},
            {rng.choice(["minimum", "maximum", "exclusiveMinimum"]): rng.randrange(-1, 3)},
            {"required": rng.sample(["a", "b"], rng.randrange(1, 3))},
            {"multipleOf": 1},
            rng.random() < 0.5,
        ]
    )


def random_schema(rng, depth=3):
    """Return a schema that combines others, some levels deep."""
    if depth == 0 or rng.random() < 0.2:
        return random_leaf(rng)

    def part():
        return random_schema(rng, depth - 1)

    keyword = rng.choice(["allOf", "anyOf", "oneOf", "not", "if", "depends", "properties", "items"])
    if keyword in ("allOf", "anyOf", "oneOf"):
        return {keyword: [part() for _ in range(rng.randrange(1, 4))]}
    if keyword == "not":
        return {"not": part()}
    if keyword == "if":
        return {"if": part(), "then": part()} | ({"else": part()} if rng.random() < 0.5 else {})
    if keyword == "depends":
        return rng.choice(
            [{"dependentRequired": {"a": ["b"]}}, {"dependentSchemas": {"a": part()}}]
        )
    if keyword == "items":
        return {"type": "array", "items": part()}
    more = rng.choice([{}, {"required": ["a"]}, {"additionalProperties": False}])
    return {"type": "object", "properties": {name: part() for name in "ab"}} | more


def test_whatever_a_random_schema_matches_is_valid() -> None:
    matched = compiled = 0
    for seed in range(24):
        schema = random_schema(random.Random(seed))
        valid = jsonschema.Draft202012Validator(schema).is_valid
        try:
            values = fitting(schema)
        except GrammarError:
            continue
        compiled += 1
        matched += len(values)
        assert all(map(valid, values)), schema
    assert compiled >= 16
    assert matched >= 100
