"""Running experiments on an engine without a model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from sgjax.errors import ConfigError, ResultsError
from sgjax.lab.agreement import OVERALL
from sgjax.lab.config import load_experiment
from sgjax.lab.records import read_records
from sgjax.lab.runner import run_experiment
from sgjax.lab.summary import summarise
from sgjax.lab.workloads import (
    DataSource,
    MmluWorkload,
    MultiTurnChatWorkload,
    ReactWorkload,
    TraceWorkload,
)
from sgjax.theory.bound import hit_rate_bound
from tests.lab.fake_engine import FakeEngine

QUICKSTART = Path(__file__).parents[2] / "experiments" / "quickstart.yaml"


@pytest.fixture
def experiment():
    return load_experiment(QUICKSTART, ["workloads.mmlu.num_questions=12", "repeats=2"])


@pytest.fixture
def console(tmp_path):
    with open(tmp_path / "console.txt", "w") as file:
        yield Console(file=file)


class Builder:
    """Builds fake engines and remembers them."""

    def __init__(self, **options):
        self.options = options
        self.engines = []

    def __call__(self, settings):
        self.engines.append(FakeEngine(**self.options, **settings))
        return self.engines[-1]


def records_of(finished):
    return read_records(finished.directory)[1]


def test_every_variant_is_timed_in_turns_and_the_warm_up_is_not_recorded(
    experiment, console, tmp_path
):
    builder = Builder()
    finished = run_experiment([experiment], tmp_path, builder, console)
    order = [(r.repeat, r.variant) for r in records_of(finished)]
    assert order == [(n, v) for n in (0, 1) for v in ("full", "no_cache", "fcfs")]
    assert (finished.num_records, finished.interrupted) == (6, False)
    assert [engine.runs for engine in builder.engines] == [3, 3, 3]
    assert all(engine.closed for engine in builder.engines)


def test_without_interleaving_one_engine_is_alive_at_a_time(experiment, console, tmp_path):
    alive = []

    class Counted(Builder):
        def __call__(self, settings):
            engine = super().__call__(settings)
            alive.append(sum(not e.closed for e in self.engines))
            return engine

    finished = run_experiment([replace(experiment, interleave=False)], tmp_path, Counted(), console)
    assert alive == [1, 1, 1]
    assert [r.variant for r in records_of(finished)] == ["full"] * 2 + ["no_cache"] * 2 + [
        "fcfs"
    ] * 2


def test_each_timed_run_begins_with_an_empty_cache(experiment, console, tmp_path):
    finished = run_experiment([experiment], tmp_path, Builder(), console)
    rows = experiment.workloads["mmlu"].load(experiment.data, 0).rows
    bound = hit_rate_bound([list(row["prompt"].encode()) for row in rows])
    for record in records_of(finished):
        if record.variant == "full":
            assert record.metrics["computed_tokens"] == bound.tree_tokens
            assert record.metrics["cache_hit_rate"] == pytest.approx(bound.optimal)
        if record.variant == "no_cache":
            assert record.metrics["computed_tokens"] == bound.prompt_tokens


def test_each_seed_orders_the_programs_anew_and_reaches_the_engine(experiment, console, tmp_path):
    builder = Builder()
    finished = run_experiment([replace(experiment, seeds=(3, 4))], tmp_path, builder, console)
    assert [e.settings["seed"] for e in builder.engines] == [3, 3, 3, 4, 4, 4]
    digests = {r.seed: r.answers_digest for r in records_of(finished)}
    assert digests[3] != digests[4]


def test_records_say_where_they_come_from(experiment, console, tmp_path):
    first = records_of(run_experiment([experiment], tmp_path, Builder(), console))[0]
    assert (first.experiment, first.claim) == (experiment.name, experiment.claim)
    assert (first.model, first.dtype, first.executor) == ("smollm2-135m", "float32", "cpu")
    assert first.config["engine"]["cache"] == {"type": "tree"}
    assert first.config["experiment"]["workloads"]["mmlu"]["num_questions"] == 12
    assert {"python", "jax", "numpy"} <= set(first.versions)


def test_ctrl_c_keeps_the_records_so_far_and_closes_the_engines(experiment, console, tmp_path):
    class Impatient(FakeEngine):
        def flush_cache(self):
            if self.runs == 2:
                raise KeyboardInterrupt
            return super().flush_cache()

    engines = []

    def build(settings):
        kind = Impatient if settings["cache"] == {"type": "none"} else FakeEngine
        engines.append(kind(**settings))
        return engines[-1]

    finished = run_experiment([experiment], tmp_path, build, console)
    assert (finished.num_records, finished.interrupted) == (4, True)
    assert [r.variant for r in records_of(finished)] == ["full", "no_cache", "fcfs", "full"]
    assert all(engine.closed for engine in engines)


def test_a_failing_variant_leaves_the_records_before_it(experiment, console, tmp_path):
    class Failing(FakeEngine):
        def flush_cache(self):
            return self.settings["policy"] != {"type": "fcfs"}

    with pytest.raises(ResultsError, match="fcfs: the cache could not be emptied"):
        run_experiment([experiment], tmp_path, lambda s: Failing(**s), console)
    [directory] = (tmp_path / "quickstart").iterdir()
    assert [r.variant for r in read_records(directory)[1]] == ["full", "no_cache"]


def test_lines_are_json_objects_with_the_documented_keys(experiment, console, tmp_path):
    finished = run_experiment([experiment], tmp_path, Builder(), console)
    documented = {
        "experiment", "claim", "workload", "variant", "seed", "executor", "device", "model",
        "dtype", "config", "config_hash", "git_sha", "versions", "started", "wall_s", "metrics",
    }  # fmt: skip
    for line in (finished.directory / "results.jsonl").read_text().splitlines():
        assert documented <= set(json.loads(line))


def test_variants_that_answer_alike_are_found_to_agree(experiment, console, tmp_path):
    finished = run_experiment([experiment], tmp_path, Builder(), console)
    [verdict] = [v for v in verdicts_of(finished) if "answers_digest" in v.source]
    assert verdict.holds is True


def test_variants_that_answer_differently_are_found_out(experiment, console, tmp_path):
    def build(settings):
        letter = "A" if settings["policy"] == {"type": "fcfs"} else "B"
        return FakeEngine(answer=lambda text: letter, **settings)

    finished = run_experiment([experiment], tmp_path, build, console)
    [verdict] = [v for v in verdicts_of(finished) if "answers_digest" in v.source]
    assert verdict.holds is False


def test_a_variant_whose_repeats_disagree_equals_nothing(experiment, console, tmp_path):
    class Fickle(FakeEngine):
        def __init__(self, **settings):
            super().__init__(answer=lambda text: "ABCD"[self.runs], **settings)

    finished = run_experiment([experiment], tmp_path, lambda s: Fickle(**s), console)
    [verdict] = [v for v in verdicts_of(finished) if "answers_digest" in v.source]
    assert verdict.holds is False
    remarks = summarise(records_of(finished)).remarks
    assert "mmlu, full: answers differ between runs of one seed." in remarks


def test_a_run_that_compiled_while_timed_is_made_again(experiment, console, tmp_path):
    builder = Builder(compiles_in_runs=(0, 1, 2))
    finished = run_experiment([experiment], tmp_path, builder, console)
    assert [engine.runs for engine in builder.engines] == [1 + 3 + 1] * 3
    assert all(record.metrics["compilations"] == 0 for record in records_of(finished))
    assert summarise(records_of(finished)).remarks == ()


def test_a_run_that_compiles_however_often_it_is_made_is_remarked(experiment, console, tmp_path):
    builder = Builder(compiles_in_runs=range(100))
    finished = run_experiment([experiment], tmp_path, builder, console)
    remarks = summarise(records_of(finished)).remarks
    assert any("full: 2 of 2 timed runs compiled" in remark for remark in remarks)


def test_a_warm_up_runs_the_first_programs_only(experiment, console, tmp_path):
    builder = Builder()
    run_experiment([replace(experiment, warmup=5)], tmp_path, builder, console)
    for engine in builder.engines:
        assert engine.counters["forward_passes"] == 5 + 2 * 12


def test_a_setting_that_no_engine_knows_is_refused_before_anything_runs(
    experiment, console, tmp_path
):
    wrong = replace(experiment, base={"polcy": {"type": "lpm"}})
    builder = Builder()
    with pytest.raises(ConfigError, match="did you mean 'policy'"):
        run_experiment([wrong], tmp_path / "out", builder, console)
    assert builder.engines == []
    assert not (tmp_path / "out").exists()


def test_a_data_path_that_is_not_there_is_refused_where_nothing_reads_it_too(
    experiment, console, tmp_path
):
    chats = {"chat": MultiTurnChatWorkload(num_chats=1)}
    lost = replace(experiment, workloads=chats, data=DataSource("nowhere"))
    with pytest.raises(ConfigError, match=r"data\.path=.nowhere. is not allowed; not found"):
        run_experiment([lost], tmp_path, Builder(), console)


def test_data_in_another_form_is_a_users_mistake_and_not_a_crash(experiment, console, tmp_path):
    (tmp_path / "react_fewshot_prompts.jsonl").write_text('{"name": "mine", "text": ""}\n')
    (tmp_path / "react_hotpotqa_100.jsonl").write_text('{"question": "", "steps": [{"a": 1}]}\n')
    wrong = replace(
        experiment, workloads={"agents": ReactWorkload()}, data=DataSource(str(tmp_path))
    )
    with pytest.raises(ConfigError, match=r"'agents' cannot use data\.path=.*StopIteration"):
        run_experiment([wrong], tmp_path / "out", Builder(), console)


def test_a_workload_without_programs_is_refused_before_anything_runs(experiment, console, tmp_path):
    empty = replace(experiment, workloads={"t": TraceWorkload("t.jsonl", max_tokens=1)})
    with pytest.raises(ConfigError, match="workload 't' has no programs"):
        run_experiment([empty], tmp_path, Builder(), console)


def test_missing_runs_are_remarked_and_their_expectations_left_open(experiment, console, tmp_path):
    records = records_of(run_experiment([experiment], tmp_path, Builder(), console))
    summary = summarise([r for r in records if r.variant != "fcfs"])
    assert "mmlu, fcfs: 0 of 2 timed runs were made." in summary.remarks
    assert [v.holds is None for v in summary.verdicts["mmlu"]] == [False, False, True, True]


def test_equal_prompts_are_remarked_with_what_can_be_reached(experiment, console, tmp_path):
    class Twice(MmluWorkload):
        def load(self, data, seed):
            task = super().load(data, seed)
            return replace(task, rows=task.rows * 2, expected=task.expected * 2)

    again = replace(experiment, workloads={"mmlu": Twice(num_questions=3)})
    records = records_of(run_experiment([again], tmp_path, Builder(), console))
    achieved = next(r.metrics["cache_hit_rate"] for r in records if r.variant == "full")
    [remark] = summarise(records).remarks
    assert "some prompts are known in full" in remark
    assert f"{achieved * 100:.1f} % is the highest" in remark


def test_expectations_of_means_are_judged_once_over_all_workloads(experiment, console, tmp_path):
    small = MmluWorkload(num_questions=3)
    two = replace(
        experiment,
        workloads={"one": small, "other": replace(small, shots=1)},
        expect=("mean(full.prompt_tokens) >= 0", "full.prompt_tokens >= 0"),
    )
    summary = summarise(records_of(run_experiment([two], tmp_path, Builder(), console)))
    each = [summary.stats[name, "full"]["prompt_tokens"].median for name in two.workloads]
    [verdict] = summary.verdicts[OVERALL]
    assert verdict.detail == f"{sum(each) / 2:.4g} >= 0"
    assert [len(summary.verdicts[name]) for name in two.workloads] == [1, 1]


def test_medians_and_ranges_are_over_all_runs(experiment, console, tmp_path):
    records = records_of(run_experiment([experiment], tmp_path, Builder(), console))
    fast = [
        replace(records[0], repeat=i, metrics={**records[0].metrics, "accuracy": a})
        for i, a in enumerate((3, 1, 2))
    ]
    stat = summarise(fast).stats["mmlu", "full"]["accuracy"]
    assert (stat.median, stat.low, stat.high, stat.runs) == (2, 1, 3, 3)


def verdicts_of(finished):
    return summarise(records_of(finished)).verdicts["mmlu"]
