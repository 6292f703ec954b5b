"""Constraints through the engine, on the tiny model: outputs match, others are not touched."""

import itertools
import json
import random
import re
import threading

import pytest

import sgjax as sgl
from sgjax.types import Constraint, ConstraintKind, Request, SamplingParams, Wants

PATTERNS = [
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])",
    r"(Excellent|Above Average|Fair|Below Average)",
    r'\{"name": "[a-z]{1,8}", "age": [1-9][0-9]?\}',
    r"(red|green|blue) (car|bike)(, (red|green|blue) (car|bike)){0,2}",
    r"[東京都]{1,3}|😀x?",
    r"ab?",
    r"a(?=b)[a-z]{1,3}",
]
PLAIN = {"temperature": 0.0, "max_new_tokens": 10, "ignore_eos": True}


def make(jump="tokens", **config):
    return sgl.Engine(
        "random:tiny",
        dtype="float32",
        max_context_len=256,
        max_running=8,
        kv_tokens=1600,
        token_budget=256,
        debug_checks=True,
        grammar={"jump": {"type": jump}, "table_bytes": 4096},
        **config,
    )


@pytest.fixture(scope="module")
def engine():
    with make() as engine:
        yield engine


@pytest.mark.parametrize("jump", ["none", "retokenize", "tokens", "string"])
def test_mixed_batches_match_their_patterns_and_leave_plain_rows_alone(jump) -> None:
    rng = random.Random(jump)
    with make(jump) as engine:
        prompts = [f"prompt {i} {rng.random()}" for i in range(40)]
        patterns = [rng.choice([*PATTERNS, None]) for _ in prompts]
        params = [
            PLAIN
            if pattern is None
            else {"regex": pattern, "temperature": rng.choice([0.0, 1.5]), "max_new_tokens": 100}
            for pattern in patterns
        ]
        results = engine.generate(prompts, params)
        for prompt, pattern, result in zip(prompts, patterns, results, strict=True):
            if pattern is None:
                # Rule 4: a mask belongs to its row.
                assert result["output_ids"] == engine.generate(prompt, PLAIN)["output_ids"]
            else:
                assert re.fullmatch(pattern, result["text"], re.ASCII), (pattern, result)
                assert result["meta_info"]["finish_reason"]["type"] == "stop"
        info = engine.get_server_info()
        assert (info["forced_tokens"] > 0) == (jump != "none")
        assert info["grammars"]["compiled"] == len({p for p in patterns if p is not None})


def test_choices_are_constraints_too(engine) -> None:
    choices = ["東京", "京都", "😀", "plain", ""]
    for seed in range(4):
        params = {"choices": choices, "temperature": 2.0, "seed": seed}
        assert engine.generate("x", params)["text"] in choices


def test_a_bad_pattern_fails_alone_and_at_once(engine) -> None:
    bad = ["(", r"(a)\1", r"(?<=a)b", r"\bx", "((a{0,1000}){0,1000}){0,1000}", "[^\\s\\S]"]
    params = [{"regex": p} for p in bad] + [{"regex": "ab?"}, PLAIN, {"json_schema": "{"}]
    results = engine.generate(["x"] * len(params), params)
    for pattern, result in zip(bad, results, strict=False):
        assert result["meta_info"]["finish_reason"]["error"] == "GrammarError", pattern
    assert results[-3]["text"] in ("a", "ab")
    assert len(results[-2]["output_ids"]) == 10
    assert results[-1]["meta_info"]["finish_reason"]["error"] == "GrammarError"
    with pytest.raises(sgl.GrammarError, match="unterminated"):
        engine.generate("x", {"regex": "("})


def test_an_empty_pattern_gives_an_empty_text(engine) -> None:
    assert engine.generate("x", {"regex": ""})["text"] == ""


def test_log_probabilities_of_forced_tokens_are_none(engine) -> None:
    result = engine.generate("x", {"regex": "(a|b)forced(c|d)"}, return_logprob=True)
    entries = result["meta_info"]["output_token_logprobs"]
    assert [e[1] for e in entries] == result["output_ids"]
    assert [e[0] is None for e in entries] == [False, *[True] * 6, False]
    assert result["meta_info"]["forced_tokens"] == 6


def test_a_streamed_output_arrives_whole(engine) -> None:
    pattern = r"(one|two) and then (three|four)"
    pieces = list(engine.generate("x", {"regex": pattern}, stream=True))
    for before, after in itertools.pairwise(pieces):
        assert after["text"].startswith(before["text"])
    assert re.fullmatch(pattern, pieces[-1]["text"])


def test_a_request_can_be_aborted_while_its_constraint_compiles(engine) -> None:
    # 80 states times 26 letters: some tenths of a second to compile, at least.
    slow = "(" + "|".join(f"(?=[a-z]*{c})[a-z]{{1,60}}" for c in "abcdefgh") + ")"
    heard: list[object] = []
    done = threading.Event()

    def hear(index, delta):
        heard.append(delta)
        done.set()

    request = Request(
        engine.new_id(), (5,), SamplingParams(), constraint=Constraint(ConstraintKind.REGEX, slow)
    )
    engine.submit([request], hear)
    engine.abort(request.id)
    assert done.wait(60)
    assert len(heard) == 1
    assert len(engine.generate("x", PLAIN)["output_ids"]) == 10


def test_equal_constraints_compile_once_and_without_reuse_each_time() -> None:
    for reuse, compiled in ((True, 1), (False, 5)):
        grammar = {"reuse": reuse}
        with sgl.Engine(
            "random:tiny", dtype="float32", max_context_len=256, max_running=8, kv_tokens=1600,
            token_budget=256, grammar=grammar,
        ) as engine:  # fmt: skip
            results = engine.generate(["x"] * 5, {"regex": "[ab]{3}"})
            assert all(re.fullmatch("[ab]{3}", r["text"]) for r in results)
            assert engine.get_server_info()["grammars"]["compiled"] == compiled


def test_steps_do_not_recompile_for_new_constraints(engine) -> None:
    engine.generate("warm", {"regex": "[ab]{3}"})
    before = engine.get_server_info()["compilations"]
    for i in range(30):
        engine.generate("warm", {"regex": f"[ab]{{3}}|{i}"})
    assert engine.get_server_info()["compilations"] == before


def test_a_schema_given_as_a_dict_constrains_the_text(engine) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"enum": [1, "two", None]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    params = {"json_schema": schema, "temperature": 1.0, "max_new_tokens": 80, "seed": 1}
    value = json.loads(engine.generate("x", params)["text"])
    assert value["a"] in (True, False)
    assert value["b"] in (1, "two", None)


def test_a_recursive_schema_runs_through_llguidance_beside_others() -> None:
    pytest.importorskip("llguidance")
    schema = {
        "$defs": {"t": {"type": "object", "required": ["v"], "properties": {
                  "v": {"type": "boolean"}, "left": {"$ref": "#/$defs/t"}},
                  "additionalProperties": False}},
        "$ref": "#/$defs/t",
    }  # fmt: skip
    grammar = {"guided": True, "whitespace": "compact", "table_bytes": 4096}
    with sgl.Engine(
        "random:tiny", dtype="float32", max_context_len=256, max_running=8, kv_tokens=1600,
        token_budget=256, debug_checks=True, grammar=grammar,
    ) as engine:  # fmt: skip
        params = [
            {"json_schema": schema, "temperature": 1.0, "seed": seed, "max_new_tokens": 200}
            for seed in range(6)
        ]
        results = engine.generate(["x"] * 7, [*params, {"regex": "(a|b)c{3}"}])
        assert re.fullmatch("(a|b)c{3}", results[-1]["text"])
        stopped = [r for r in results[:-1] if r["meta_info"]["finish_reason"]["type"] == "stop"]
        assert stopped
        for result in stopped:
            assert isinstance(json.loads(result["text"])["v"], bool)
            assert result["meta_info"]["forced_tokens"] > 0
        assert engine.get_server_info()["grammars"]["compiled"] == 2


def test_a_follower_whose_constraint_fails_does_not_keep_its_hint_waiting(engine) -> None:
    hint = Request(engine.new_id(), (5, 6, 7), wants=Wants.NOTHING, followers=2)
    bad, good = (
        Request(
            engine.new_id(),
            (5, 6, 7, 8),
            SamplingParams(max_new_tokens=9),
            constraint=Constraint(ConstraintKind.REGEX, pattern),
            after=hint.id,
        )
        for pattern in ("(", "(one|two) more")
    )
    heard: dict[int, object] = {}
    done = threading.Event()

    def hear(index, delta):
        if isinstance(delta, Exception) or delta.completion is not None:
            heard[index] = delta
            if len(heard) == 3:
                done.set()

    engine.submit([hint, bad, good], hear)
    assert done.wait(60)
    assert isinstance(heard[1], sgl.GrammarError)
    assert heard[2].completion.text in ("one more", "two more")
    assert engine.flush_cache()


@pytest.mark.parametrize("jump", ["none", "retokenize", "tokens", "string"])
@pytest.mark.parametrize("pattern", ["abcdef", "[a-f]cd[a-f]"])
def test_a_stop_string_within_forced_text_ends_the_output_before_it(jump, pattern) -> None:
    with make(jump) as engine:
        result = engine.generate(
            "p", {"regex": pattern, "stop": "cd", "temperature": 0, "max_new_tokens": 20}
        )
        assert re.fullmatch("ab|[a-f]", result["text"])
        assert result["meta_info"]["finish_reason"] == {"type": "stop", "matched": "cd"}
