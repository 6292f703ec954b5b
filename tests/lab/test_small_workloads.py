"""Nested ways and lines of code: workloads that measure the host and the programs themselves."""

import pytest

import sgjax as sgl
from sgjax.errors import ConfigError
from sgjax.lab.workloads import DataSource, LinesOfCodeWorkload, NestedWorkload
from sgjax.lab.workloads.lines_of_code import count_lines
from sgjax.lang.spec import LanguageSpec

SIM = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b"}

OURS = '''"""A program."""

import sgjax as sgl


@sgl.function
def judge(s, topic, essay):
    """Judge."""
    # In one go.
    s += topic + essay
    s += sgl.gen("answer", max_tokens=2)


if __name__ == "__main__":
    judge.run(topic="a", essay="b")
'''
PLAIN = '''import json


class Judge:
    """Judge."""

    def __init__(self, client):
        self.client = client

    def judge(self, topic, essay):
        message = {
            "role": "user",
            "content": topic + essay,
        }
        return json.loads(self.client.ask(message))
'''


def test_nested_prompts_are_ways_down_one_tree():
    task = NestedWorkload(300, depth=4, step=5, branches=2).load(DataSource(), seed=0)
    prompts = [a.tokens for a in task.arrivals]
    assert {len(p) for p in prompts} == {21}
    for depth in range(1, 5):
        assert len({p[: 5 * depth] for p in prompts}) == 2**depth
    assert len(set(prompts)) == 300
    with pytest.raises(ConfigError, match="must be >= 1"):
        NestedWorkload(300, depth=0, step=5).load(DataSource(), seed=0)


def test_the_hosts_time_is_measured_beside_the_virtual_one():
    task = NestedWorkload(60, depth=3, step=8).load(DataSource(), seed=0)
    with sgl.Engine(executor=SIM) as engine:
        ran = task.run(engine, LanguageSpec())
        info = engine.get_server_info()
    assert 10 < ran.metrics["host_us_per_request"] < 1e6
    assert info["cache_s"] > 0


def test_lines_of_code_are_counted_and_the_program_runs(tmp_path):
    (tmp_path / "ours.py").write_text(OURS)
    (tmp_path / "plain.py").write_text(PLAIN)
    assert (count_lines(tmp_path / "ours.py"), count_lines(tmp_path / "plain.py")) == (5, 10)
    files = {"folder": str(tmp_path), "ours": "ours.py", "plain": "plain.py"}
    with sgl.Engine(executor=SIM) as engine:
        ran = LinesOfCodeWorkload(**files).load(DataSource(), seed=0).run(engine, LanguageSpec())
    assert ran.metrics == {"lines_ours": 5, "lines_plain": 10, "lines_ratio": 2.0}
    assert ran.outcomes[0].completion_tokens == 2
    with pytest.raises(ConfigError, match="has no program 'other'"):
        LinesOfCodeWorkload(**files, function="other").load(DataSource(), seed=0)
    with pytest.raises(ConfigError, match=r"gone\.py is not there; name the programs' folder"):
        LinesOfCodeWorkload(**files | {"plain": "gone.py"}).load(DataSource(), seed=0)
