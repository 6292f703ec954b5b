"""A workload of the user's own, from a file, without a change of the library."""

import pytest

import sgjax as sgl
from sgjax.errors import ConfigError
from sgjax.lab.workloads import DataSource, WorkloadConfig
from sgjax.lang.spec import LanguageSpec
from sgjax.typed import validate

MINE = """
import sgjax as sgl
from sgjax.lab.workloads.programs import ProgramsTask

@sgl.function
def ask(s, topic):
    s += "Write about " + topic + ": " + sgl.gen("text", max_tokens=2, ignore_eos=True)

def load(data, seed, num_topics=3):
    return ProgramsTask(ask, tuple({"topic": f"topic {i}"} for i in range(num_topics)), seed)

def nothing(data, seed):
    return None
"""


@pytest.fixture
def workload(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "mine.txt").write_text("")

    def workload(file="mine.py", **keys):
        data = {"type": "python", "file": str(tmp_path / file), **keys}
        return validate(WorkloadConfig, data, "a test")

    return workload


def test_its_programs_run_with_the_options_that_yaml_gives(workload):
    task = workload(options={"num_topics": 5}).load(DataSource(), seed=0)
    executor = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b"}
    with sgl.Engine(executor=executor) as engine:
        ran = task.run(engine, LanguageSpec())
    assert [outcome.completion_tokens for outcome in ran.outcomes] == [2] * 5


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"file": "other.py"}, r"other\.py is not there"),
        ({"file": "mine.txt"}, r"must end in \.py"),
        ({"file": "broken.py"}, "cannot be imported: ZeroDivisionError"),
        ({"function": "lod"}, "has no function 'lod'"),
        ({"options": {"num_topic": 1}}, r"options=.* do not fit load\(data, seed, num_topics=3\)"),
        ({"function": "nothing"}, "returned NoneType; a Task is needed"),
    ],
)
def test_what_is_wrong_with_it_is_said(workload, keys, complaint):
    with pytest.raises(ConfigError, match=complaint):
        workload(**keys).load(DataSource(), seed=0)
