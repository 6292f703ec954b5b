"""SamplingParams: what a user may write, and what is refused before it reaches the engine."""

import json
import math
import pickle

import pytest

from sgjax.errors import ConfigError
from sgjax.types import ConstraintKind, Request, SamplingParams


def test_none_means_the_default_and_minus_one_means_all() -> None:
    assert SamplingParams.from_dict({"top_k": -1, "stop": None}) == SamplingParams()


def test_stop_may_be_one_string_and_logit_bias_a_mapping() -> None:
    params = SamplingParams.from_dict({"stop": "a", "stop_token_ids": 3, "logit_bias": {"7": -1}})
    assert params.stop == ("a",)
    assert params.stop_token_ids == (3,)
    assert params.logit_bias == ((7, -1),)


def test_a_schema_may_be_a_mapping_or_its_text() -> None:
    schema = {"type": "integer"}
    one = SamplingParams.from_dict({"json_schema": schema}).constraint
    other = SamplingParams.from_dict({"json_schema": json.dumps(schema)}).constraint
    assert one == other
    assert one is not None
    assert one.kind is ConstraintKind.JSON_SCHEMA


def test_a_request_pickles() -> None:
    request = Request("r", (1, 2), SamplingParams(stop=("x",), logit_bias=((1, 0.5),)))
    assert pickle.loads(pickle.dumps(request)) == request


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"max_new_tokens": True}, "max_new_tokens"),
        ({"n": 0}, "n=0"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"temperature": 1e39}, "temperature"),  # infinite in the device's float32
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"top_k": 0}, "top_k"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 1e-40}, "repetition_penalty"),
        ({"frequency_penalty": 1e39}, "frequency_penalty"),
        ({"presence_penalty": "1"}, "presence_penalty"),
        ({"logit_bias": {7: 1e39}}, "logit_bias"),
        ({"logit_bias": {1.7: 1.0}}, "1.7 is no token id"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias"),
        ({"logit_bias": {"a": 1.0}}, "no token id"),
        ({"logit_bias": [1]}, "pairs"),
        ({"logit_bias": [(1, 2.0, 3)]}, "pairs"),
        ({"logit_bias": [(1, 2.0), (1, 3.0)]}, "twice"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"stop": b"ab"}, "a text or a list of texts"),
        ({"stop": "\ud800"}, "surrogate"),
        ({"stop_token_ids": [True]}, "stop_token_ids"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"json_schema": {"enum": {1, 2}}}, "json_schema"),
        ({"json_schema": 3}, "json_schema"),
        ({"choices": []}, "choices"),
        ({"choices": 3}, "choices"),
        ({"regex": "a", "choices": ["b"]}, "regex and choices"),
        ({"min_new_tokens": 9, "max_new_tokens": 8}, "min_new_tokens=9"),
        ({"temprature": 1}, "did you mean 'temperature'"),
        ({3: 4}, "unknown sampling parameter 3"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused(values, says) -> None:
    with pytest.raises(ConfigError, match=says):
        SamplingParams.from_dict(values)
