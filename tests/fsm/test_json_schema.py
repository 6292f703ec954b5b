"""JSON schemas: texts of the language are valid by `jsonschema`, and what is refused is named."""

import json
import random

import pytest

from sgjax.errors import GrammarError
from sgjax.fsm.automaton import build_char_dfa
from sgjax.fsm.cache import GrammarCache, GrammarCompiler
from sgjax.fsm.json_schema import JsonStyle, schema_to_tree
from sgjax.fsm.kernels import Budget
from sgjax.fsm.parse import parse
from sgjax.fsm.portable import PortableKernels
from sgjax.fsm.size import check_size
from sgjax.fsm.spec import GrammarSpec
from sgjax.fsm.utf8 import build_byte_dfa
from sgjax.fsm.vocabulary import unpack_ids
from sgjax.types import Constraint, ConstraintKind, SamplingParams
from tests.fsm.small import byte_level

jsonschema = pytest.importorskip("jsonschema")

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 4},
        "age": {"type": "integer", "minimum": 7, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        "kind": {"const": "x"},
    },
    "required": ["name", "kind"],
    "additionalProperties": False,
}
SCHEMAS = [
    PERSON,
    {"type": "string", "pattern": "^a+$|é", "maxLength": 5},
    {"type": "string", "pattern": "b[0-9]", "maxLength": 4},
    {"type": "string", "format": "date"},
    {"type": "number", "minimum": -1.25, "exclusiveMaximum": 30.5},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    {"type": "integer", "exclusiveMinimum": -120, "maximum": 95},
    {"type": "integer", "minimum": 1234},
    {"type": "integer", "multipleOf": 10},
    {"type": ["boolean", "null"]},
    {"enum": ["a", 1, None, {"x": [True, "é\n"]}]},
    {"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "null"}], "items": False},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
    {"anyOf": [{"type": "integer"}, {"const": "n"}], "title": "an annotation"},
    {"oneOf": [{"type": "object", "properties": {"t": {"const": 1}}, "required": ["t"]},
               {"type": "object", "properties": {"t": {"const": 2}}, "required": ["t"]}]},
    {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 9}, {"not": {"type": "string"}}]},
    {"type": "object", "patternProperties": {"^n_": {"type": "integer"}},
     "additionalProperties": {"type": "boolean"}, "properties": {"n_1": {"maximum": 5}}},
    {"$ref": "#/$defs/pair", "$defs": {"pair": {"type": "array", "items": {"$ref": "#/$defs/bit"},
     "minItems": 2, "maxItems": 2}, "bit": {"enum": [0, 1]}}},
    {"type": "object", "required": ["free"], "additionalProperties": {"type": "null"}},
    {},
]  # fmt: skip


NAMED = {
    "type": "object",
    "properties": {"b": {"type": "null"}},
    "propertyNames": {"pattern": "^a"},
    "additionalProperties": {"type": "integer"},
}


def doubling(keyword):
    """Return a schema in which 30 references unfold into 2**30 parts."""
    defs = {
        f"d{i}": {keyword: {k: {"$ref": f"#/$defs/d{i + 1}"} for k in "ab"}}
        if keyword == "properties"
        else {keyword: [{"$ref": f"#/$defs/d{i + 1}"}] * 2}
        for i in range(30)
    }
    return {"$ref": "#/$defs/d0", "$defs": defs | {"d30": {"type": "null"}}}


def language(schema, style=JsonStyle("fixed")):  # noqa: B008 - frozen
    return build_char_dfa(schema_to_tree(json.dumps(schema), style), PortableKernels(), Budget())


def sample(dfa, rng, longest=60) -> str | None:
    """Return a random text of a language, None if it gets too long."""
    alphabet, state, text = dfa.alphabet, 0, ""
    starts = alphabet.starts.tolist()
    while len(text) < longest:
        moves = [
            (start, int(dfa.trans[state, c]))
            for start, c in zip(starts, alphabet.class_of.tolist(), strict=True)
            if c >= 0 and dfa.trans[state, c] >= 0
        ]
        if dfa.accepting[state] and (not moves or rng.random() < 0.3):
            return text
        code, state = rng.choice(moves)
        text += chr(code)
    return None


@pytest.mark.parametrize("whitespace", ["compact", "fixed", "bounded"])
@pytest.mark.parametrize("index", range(len(SCHEMAS)))
def test_every_text_is_valid(index, whitespace) -> None:
    schema = SCHEMAS[index]
    validator = jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    rng = random.Random(index)
    dfa = language(schema, JsonStyle(whitespace))
    texts = [text for _ in range(120) if (text := sample(dfa, rng)) is not None]
    assert texts
    for text in texts:
        validator.validate(json.loads(text))


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        (PERSON, {"name": "東京", "kind": "x"}, True),
        (PERSON, {"name": 'a"\n', "age": 130, "tags": ["a"], "kind": "x"}, True),
        (PERSON, {"name": "", "kind": "x"}, False),
        (PERSON, {"name": "a"}, False),
        (PERSON, {"name": "a", "age": 131, "kind": "x"}, False),
        (PERSON, {"name": "a", "kind": "x", "more": 1}, False),
        ({"type": "integer", "minimum": -15, "maximum": 205}, -15, True),
        ({"type": "integer", "minimum": -15, "maximum": 205}, -16, False),
        ({"type": "integer", "minimum": -15, "maximum": 205}, 199, True),
        ({"type": "integer", "minimum": -15, "maximum": 205}, 206, False),
        ({"type": "number"}, -1.5e-7, True),
        ({"type": "object", "properties": {"a": {}}}, {"a": [{"b": 1}]}, True),
        ({"type": "number", "multipleOf": 0.01, "maximum": -3}, -4.31, True),
        ({"type": "number", "multipleOf": 0.01, "maximum": -3}, -4.315, False),
        ({"type": "number", "multipleOf": 0.01, "maximum": -3}, -2.99, False),
        ({"type": "array"}, [], True),
        (False, 1, False),
        (NAMED, {"a1": 2}, True),
        (NAMED, {"b": None}, False),
        (NAMED, {"a1": 2, "b": None}, False),
        ({"type": "number", "multipleOf": 1e-30, "minimum": 0}, 0.5, True),
        ({"type": "integer", "minimum": -(10**90), "maximum": 10**90}, 10**90, True),
        ({"type": "integer", "minimum": -(10**90), "maximum": 10**90}, 10**90 + 1, False),
        (
            {
                "allOf": [
                    {"minimum": 3, "exclusiveMinimum": False},
                    {"minimum": 3, "exclusiveMinimum": True},
                ],
                "type": "integer",
            },
            3,
            False,
        ),
    ],
)
def test_values_fit_or_not(schema, value, fits) -> None:
    text = json.dumps(value, ensure_ascii=False)
    if schema is False:
        with pytest.raises(GrammarError, match="matches no text"):
            language(schema)
        return
    assert language(schema).matches(text) == fits


def test_integer_ranges_are_exact() -> None:
    rng = random.Random(1)
    for _ in range(40):
        low, high = sorted(rng.randrange(-1200, 1200) for _ in range(2))
        dfa = language({"type": "integer", "minimum": low, "maximum": high})
        for value in {
            low - 1,
            low,
            high,
            high + 1,
            0,
            *(rng.randrange(-1300, 1300) for _ in "x" * 9),
        }:
            assert dfa.matches(str(value)) == (low <= value <= high), (low, high, value)


@pytest.mark.parametrize("open_low", [True, False])
def test_decimal_ranges_are_exact(open_low) -> None:
    from decimal import Decimal

    rng = random.Random(2)
    for _ in range(25):
        low, high = sorted(round(rng.uniform(-30, 30), rng.randrange(4)) for _ in range(2))
        name = "exclusiveMinimum" if open_low else "minimum"
        dfa = language({"type": "number", name: low, "maximum": high})
        for _ in range(30):
            text = f"{rng.choice([low, high, rng.uniform(-31, 31)]):.{rng.randrange(5)}f}"
            value, bound = Decimal(text), Decimal(str(low))
            fits = (value > bound if open_low else value >= bound) and value <= Decimal(str(high))
            # Zero has a sign, and bounds of one sign leave the other out.
            if value != 0:
                assert dfa.matches(text) == fits, (low, high, text)


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "array", "items": {"enum": [*"abcdefghi"]}, "uniqueItems": True}, "uniqueItems"),
        ({"if": {"contains": {}}, "then": {}}, "contains"),
        ({"$ref": "#"}, "recursive"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}, "recursive"),
        ({"$ref": "#/nowhere"}, "no '#/nowhere'"),
        ({"$ref": "https://elsewhere"}, "not local"),
        ({"not": {"uniqueItems": True}}, "uniqueItems"),
        ({"oneOf": [{"multipleOf": 2}, {"multipleOf": 4}]}, "multipleOf"),
        ({"type": "integer", "multipleOf": 3}, "multipleOf"),
        ({"type": "string", "format": "iri"}, "format"),
        ({"not": {"minProperties": 2}}, "minProperties"),
        ({"type": "strin"}, "strin"),
        ({"type": "object", "minProperties": 2}, "minProperties"),
        ({"patternProperties": {"^x": True}, "additionalProperties": False, "maxProperties": 2},
         "maxProperties"),
        ({"properties": {"a": True}, "required": ["a", "b"], "maxProperties": 1}, "maxProperties"),
        ({"type": "string", "pattern": "("}, "unterminated"),
        ({"properties": [1]}, "malformed"),
        ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "pattern"),
        ({"type": "string", "maxLength": 10**9}, "max_states"),
        ([1], "schema must be"),
        ({"type": "string", "minLength": 2.5}, "minLength"),
        ({"type": "string", "maxLength": True}, "maxLength"),
        ({"type": "array", "minItems": "2"}, "minItems"),
        ({"type": "object", "maxProperties": -1}, "maxProperties"),
        ({"type": "integer", "minimum": "3"}, "minimum"),
        ({"type": "number", "exclusiveMinimum": True}, "exclusiveMinimum"),
        ({"type": "number", "multipleOf": "a"}, "multipleOf"),
        ({"type": "number", "multipleOf": 10**500}, "multipleOf"),
        ({"type": "string", "minLength": 5, "maxLength": 3}, "matches no text"),
        ({"$ref": "#/items/5", "items": [{}]}, "no '#/items/5'"),
        ({"$ref": "#/items/x", "items": [{}]}, "no '#/items/x'"),
        ({"allOf": [{"items": {"minimum": 2}}, {"prefixItems": [{"const": 1}]}]}, "prefixItems"),
        ({"allOf": [{"additionalProperties": {"type": "null"}},
                    {"patternProperties": {"^a": {"type": "string"}}}]}, "additionalProperties"),
        ({"properties": {"a": {"$id": "x", "$ref": "#/$defs/b", "$defs": {"b": {}}}}}, "id"),
        ({"properties": {"b": {}}, "required": ["b"], "propertyNames": {"pattern": "^a"}},
         "matches no text"),
        ({"allOf": [{"maximum": 7, "exclusiveMaximum": True}, {"exclusiveMaximum": 5}]},
         "exclusiveMaximum"),
        (doubling("properties"), "unfolds"),
        (doubling("oneOf"), "unfolds"),
        ({"enum": [f"v{i}" for i in range(30_000)]}, "unfolds"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_by_name(schema, named) -> None:
    with pytest.raises(GrammarError, match=named.replace("(", r"\(")):
        language(schema)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ('{"minimum": NaN}', "NaN is no number"),
        ('{"maximum": -Infinity}', "Infinity is no number"),
        ('{"minimum": 1e999999999}', "minimum"),
        ('{"multipleOf": 1e-999999999}', "multipleOf"),
        ('{"const": 1e400}', "beyond a double"),
        ('{"const": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"items": ' * 3_000 + "{}" + "}" * 3_000, "nested too deeply"),
    ],
)
def test_a_broken_schema_text_is_refused(text, said) -> None:
    with pytest.raises(GrammarError, match=said):
        schema_to_tree(text, JsonStyle())


@pytest.mark.parametrize(
    "tree",
    [
        parse("((a{0,100}){0,100}){0,100}"),
        parse("(?=(b{900}){900})a|c{1,300000}"),
        schema_to_tree('{"type": "string", "minLength": 1000000}', JsonStyle()),
    ],
)
def test_hopeless_sizes_are_refused_before_anything_is_built(tree) -> None:
    with pytest.raises(GrammarError, match=r"more than 200000 states.*grammar\.max_states"):
        check_size(tree, Budget())


def test_extra_properties_cannot_pass_for_listed_ones() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}}
    dfa = language(schema, JsonStyle("fixed", extra=True))
    assert dfa.matches('{"a": null, "b": 3}')
    assert dfa.matches('{"b": 3}')
    assert not dfa.matches('{"a": 3}')
    assert not dfa.matches('{"\\u0061": 3}')
    assert not language(schema).matches('{"b": 3}')


def test_a_pydantic_model_is_a_schema() -> None:
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int

    params = SamplingParams.from_dict({"json_schema": Person})
    assert json.loads(params.json_schema)["required"] == ["name", "age"]


@pytest.mark.parametrize("guided", [False, True])
def test_recursive_schemas_go_through_llguidance_or_are_refused(guided) -> None:
    if guided:
        pytest.importorskip("llguidance")
    schema = {
        "$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"},
                  "v": {"type": "boolean"}}, "required": ["v"], "additionalProperties": False}},
        "$ref": "#/$defs/tree",
    }  # fmt: skip
    tokenizer = byte_level()
    spec = GrammarSpec(guided=guided, whitespace="fixed")
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, PortableKernels(), spec)
    constraint = Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema))
    if not guided:
        with pytest.raises(GrammarError, match="recursive"):
            compiler(constraint)
        return
    rng = random.Random(3)
    finished = 0
    shared = compiler(constraint)
    for _ in range(12):
        grammar = shared.for_request()
        state, data = grammar.start, b""
        for _ in range(80):
            forced, _ = grammar.forced(state)
            row = grammar.mask_row(state)
            allowed = unpack_ids(grammar.rows[row]).tolist()
            token = rng.choice(allowed)
            if token in tokenizer.end_ids:
                break
            piece = tokenizer.token_bytes(token)
            assert piece.startswith(forced[: len(piece)]) or forced.startswith(piece)
            data, state = data + piece, grammar.advance(state, token)
            if grammar.is_final(state):
                break
        else:
            continue
        jsonschema.validate(json.loads(data), schema)
        finished += 1
    assert finished


def test_concurrent_requests_for_one_constraint_compile_it_once() -> None:
    calls = []

    def compiler(constraint):
        calls.append(constraint)
        raise GrammarError("no")

    cache = GrammarCache(compiler, max_grammars=2)
    one, two, three = (Constraint(ConstraintKind.REGEX, p) for p in "abc")
    futures = [cache.request(c) for c in (one, one, two, one)]
    assert all(isinstance(f.exception(), GrammarError) for f in futures)
    assert sorted(c.source for c in calls) == ["a", "b"]
    cache.request(three).exception()  # forgets the least recently used: b
    cache.request(one).exception()
    cache.request(two).exception()
    assert sorted(c.source for c in calls) == ["a", "b", "b", "c"]
    assert cache.stats.failed == 4
    cache.close()


def test_bytes_of_a_schema_survive_their_tokens() -> None:
    dfa = build_byte_dfa(language({"type": "string", "maxLength": 2}))
    assert dfa.matches('"東😀"'.encode())
    assert not dfa.matches('"東😀a"'.encode())
    assert dfa.matches(b'"\\n\\u0001"')
    assert not dfa.matches(b'"\n"')
