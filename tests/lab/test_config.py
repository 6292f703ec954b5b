"""Experiment files: overrides, nearest names, and the shipped experiments."""

from pathlib import Path

import pytest

from sgjax.errors import ConfigError
from sgjax.lab.config import load_experiment

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
QUICKSTART = EXPERIMENTS / "quickstart.yaml"

MINIMAL = """
claim: a claim
workloads: {mmlu: {type: mmlu}}
variants: {full: {}}
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "exp.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_experiments_are_valid_and_bear_their_files_name(path):
    assert load_experiment(path, []).name == path.stem


def test_overrides_reach_nested_keys_in_order():
    overrides = ["repeats=5", "workloads.mmlu.num_questions=3", "base.policy={type: fcfs}"]
    experiment = load_experiment(QUICKSTART, [*overrides, "repeats=4", "data.path=[a, b]"])
    assert experiment.repeats == 4
    assert experiment.workloads["mmlu"].num_questions == 3
    assert experiment.base["policy"] == {"type": "fcfs"}
    assert experiment.data.path == ("a", "b")


def test_variant_settings_replace_those_of_the_base(write):
    text = MINIMAL.replace("full: {}", "full: {cache: {type: none}}")
    path = write(text + "base: {cache: {type: throttled, keep: 0.5}, dtype: float32}")
    settings = load_experiment(path, []).engine_settings("full", seed=3)
    assert settings == {"cache": {"type": "none"}, "dtype": "float32", "seed": 3}


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("repeat=2", "unknown key 'repeat'; did you mean 'repeats'"),
        ("workloads.mmlu.num_question=2", "num_question'; did you mean 'num_questions'"),
        ("data.pth=x", "unknown key 'data.pth'; did you mean 'path'"),
        ("workloads.mmlu.type=hellaswag", "workloads.mmlu: unknown type 'hellaswag'; allowed"),
        ("repeats=often", "repeats: got 'often'"),
        ("repeats=0", "repeats=0 is not allowed; it must be >= 1"),
        ("warmup=-1", "warmup=-1 is not allowed; it must be >= 0"),
        ("metrics=[acuracy]", "did you mean 'accuracy'"),
        ("figure.panels=[cache_hitrate]", "did you mean 'cache_hit_rate'"),
        ("expect=['fcf.accuracy > 0']", "unknown variant 'fcf'; did you mean 'fcfs'"),
        ("expect=['full.acc > 0']", "unknown metric 'acc'"),
        ("expect=['full.answers_digest > fcfs.answers_digest']", "by == or !="),
        ("expect=['full.answers_digest == full.accuracy']", "by == or !="),
        ("variants={}", "variants is empty"),
        ("variants={no-cache: {}}", "must be a name that expectations can use"),
        ("base.seed=3", "'seeds'"),
        ("name=a/b", "usable as a folder's name"),
        ("repeats", "write key=value"),
        ("=3", "write key=value"),
        ("claim.part=3", "has no keys"),
        ("claim=[", "not valid YAML"),
    ],
)
def test_bad_overrides_are_answered_with_what_is_allowed(override, complaint):
    with pytest.raises(ConfigError, match=complaint):
        load_experiment(QUICKSTART, [override])


def test_missing_keys_are_named(write):
    with pytest.raises(ConfigError, match="missing key 'workloads'"):
        load_experiment(write("claim: x\nvariants: {a: {}}"), [])


@pytest.mark.parametrize("text", ["- a list", "just text", "", "a: [1", "a: b: c"])
def test_files_that_hold_no_mapping_are_refused(write, text):
    with pytest.raises(ConfigError, match=r"exp\.yaml"):
        load_experiment(write(text), [])


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load_experiment(tmp_path / "none.yaml", [])
