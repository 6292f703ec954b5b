"""Forms to fill in: outputs that keep to their pattern, and counters that add up."""

import re

import pytest

import sgjax as sgl
from sgjax.errors import ConfigError
from sgjax.lab.metrics import METRICS
from sgjax.lab.workloads import DataSource, FormsWorkload
from sgjax.lang.spec import LanguageSpec

SIM = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b", "settle_s": 0.01}


def run(form, programs=None, **grammar):
    task = FormsWorkload(form=form, num_forms=6, words=20).load(DataSource(), seed=1)
    with sgl.Engine(executor=SIM, grammar=grammar) as engine:
        ran = task.run(engine, LanguageSpec(programs=programs))
        return task, ran, engine.get_server_info()


@pytest.mark.parametrize("form", ["character", "city", "essay"])
def test_forms_are_filled_in_as_their_pattern_says_whatever_jumps(form) -> None:
    texts = {}
    for jump in ("none", "tokens", "retokenize"):
        task, ran, info = run(form, jump={"type": jump})
        texts[jump] = [o.answer for o in ran.outcomes]
        assert all(re.fullmatch(task.pattern, text, re.ASCII) for text in texts[jump])
        assert ran.metrics["valid_outputs"] == 1
        assert ran.metrics["saved_passes"] == info["forced_tokens"] - info["rolled_back_tokens"]
        assert (ran.metrics["jumps"] > 0) == (jump != "none")
        assert ran.metrics.keys() <= METRICS.keys()
    assert texts["none"] == texts["tokens"] == texts["retokenize"]
    assert len(set(texts["none"])) > 1


def test_what_is_compiled_is_counted() -> None:
    assert run("character")[1].metrics["constraints_compiled"] == 1
    each = run("character", reuse=False)[1].metrics
    assert each["constraints_compiled"] == 6
    assert each["compile_s"] > 0


def test_one_at_a_time_makes_a_pass_for_each_sampled_token() -> None:
    _, ran, info = run("character", programs=1, jump={"type": "none"})
    assert info["forward_passes"] >= sum(o.completion_tokens for o in ran.outcomes)


def test_pages_are_read_from_files_and_cut(tmp_path) -> None:
    (tmp_path / "city_docs.jsonl").write_text('{"text": "one two three four"}\n{"text": "five"}\n')
    workload = FormsWorkload(form="city", num_forms=3, words=2)
    task = workload.load(DataSource(str(tmp_path)), seed=0)
    ends = sorted(row["prompt"].removesuffix("\n").rsplit(": ", 1)[1] for row in task.programs.rows)
    assert set(ends) == {"one two", "five"}
    assert len(ends) == 3
    with pytest.raises(ConfigError, match="words=0"):
        FormsWorkload(words=0).load(DataSource(), seed=0)
