"""Runs that were stopped, killed or run twice at once, and runs in more than one arm."""

import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from sgjax.errors import ConfigError, ProgramError, ResultsError
from sgjax.lab.config import load_experiment
from sgjax.lab.plot import redraw
from sgjax.lab.records import RESULTS, RecordWriter, read_records
from sgjax.lab.runner import run_experiment
from sgjax.lab.summary import read_arms
from sgjax.lab.workloads import DataSource
from tests.lab.fake_engine import FakeEngine

ROOT = Path(__file__).parents[2]
SMALL = ["workloads.mmlu.num_questions=4", "repeats=2"]


@pytest.fixture
def experiment():
    return load_experiment(ROOT / "experiments" / "quickstart.yaml", SMALL)


@pytest.fixture
def run(tmp_path):
    engines = []

    def run(*arms, build=FakeEngine, resume=True):
        def remember(settings):
            engines.append(build(**settings))
            return engines[-1]

        with open(tmp_path / "console.txt", "w") as file:
            return run_experiment(arms, tmp_path / "out", remember, Console(file=file), resume)

    run.engines = engines
    return run


class Stops(FakeEngine):
    """Stops before its third run, of which the first is the warm-up."""

    def flush_cache(self):
        if self.runs == 2:
            raise KeyboardInterrupt
        return super().flush_cache()


def cases(directory):
    return [(r.arm, r.variant, r.repeat) for r in read_records(directory)[1]]


def test_resuming_runs_what_is_missing_and_nothing_twice(experiment, run):
    first = run(experiment, build=Stops)
    assert (first.num_records, first.interrupted) == (3, True)
    second = run(experiment)
    assert second.directory == first.directory
    expected = [("measured", v, n) for n in (0, 1) for v in ("full", "no_cache", "fcfs")]
    assert cases(second.directory) == expected
    assert [engine.runs for engine in run.engines[3:]] == [2, 2, 2]  # a warm-up and one run each


def test_a_killed_run_loses_the_running_variant_alone_and_its_lock(experiment, run, tmp_path):
    program = textwrap.dedent(f"""
        import os, signal, sys
        from pathlib import Path
        from rich.console import Console
        from sgjax.lab.config import load_experiment
        from sgjax.lab.runner import run_experiment
        from tests.lab.fake_engine import FakeEngine
        class Killed(FakeEngine):
            def flush_cache(self):
                if self.runs == 2 and self.settings["cache"] == {{"type": "none"}}:
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().flush_cache()
        experiment = load_experiment(Path("experiments/quickstart.yaml"), {SMALL})
        run_experiment([experiment], Path(sys.argv[1]), lambda s: Killed(**s), Console())
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "out")], cwd=ROOT, capture_output=True
    )
    assert done.returncode == -9
    [directory] = (tmp_path / "out" / "quickstart").iterdir()
    assert [variant for _, variant, _ in cases(directory)] == ["full", "no_cache", "fcfs", "full"]
    assert run(experiment).directory == directory
    assert len(cases(directory)) == len(set(cases(directory))) == 6


def test_a_line_that_was_cut_off_is_run_again(experiment, run):
    directory = run(experiment).directory
    text = (directory / RESULTS).read_text()
    (directory / RESULTS).write_text(text[:-50])
    assert run(experiment).directory == directory
    assert len(cases(directory)) == 6


def test_resuming_a_finished_run_runs_nothing(experiment, run):
    directory = run(experiment).directory
    run.engines.clear()
    again = run(experiment)
    assert (again.directory, again.num_records, run.engines) == (directory, 6, [])


def test_another_experiment_of_the_name_is_not_resumed(experiment, run, tmp_path):
    first = run(experiment, build=Stops)
    second = run(replace(experiment, seeds=(5,)))
    assert second.directory != first.directory
    assert "nothing to resume" in (tmp_path / "console.txt").read_text()
    assert len(cases(second.directory)) == 6


@pytest.fixture
def shown(tmp_path):
    """What a reader sees of a folder: verdicts by expectation, remarks, the report."""

    def shown(directory):
        with open(tmp_path / "shown.txt", "w") as file:
            redraw(directory, Console(file=file, width=200))
        _, [arm] = read_arms(directory)
        verdicts = {v.source: v.holds for of in arm.verdicts.values() for v in of}
        return verdicts, arm.remarks, (directory / "report.html").read_text()

    return shown


def test_a_changed_expectation_is_judged_on_the_rows_there_are_and_nothing_runs(
    experiment, run, shown
):
    fails = "full.cache_hit_rate < no_cache.cache_hit_rate"
    directory = run(experiment).directory
    rows = (directory / RESULTS).read_text()
    run.engines.clear()
    changed = replace(experiment, expect=(fails,), claim="another claim")
    again = run(changed)
    assert (again.directory, run.engines) == (directory, [])
    assert (
        directory / RESULTS
    ).read_text() == rows  # rows say what was expected when they were made
    verdicts, remarks, report = shown(directory)
    assert verdicts == {fails: False}
    assert "another claim" in report
    [remark] = [remark for remark in remarks if "older than claim, expect of the file" in remark]
    assert f"no longer expected: {experiment.expect[0]}" in remark
    assert f"expected since: {fails}" in remark


def test_a_file_that_is_as_it_was_judges_as_it_did(experiment, run, shown):
    directory = run(experiment).directory
    before = shown(directory)
    run(replace(experiment, expect=()))
    assert shown(directory)[0] == {}
    run(experiment)
    assert shown(directory) == before


def test_what_is_missing_runs_under_the_new_expectation_and_is_judged_with_the_rest(
    experiment, run, shown
):
    directory = run(experiment, build=Stops).directory
    expected = "full.cache_hit_rate > 0"
    assert run(replace(experiment, expect=(expected,))).directory == directory
    assert len(cases(directory)) == 6
    assert shown(directory)[0] == {expected: True}


@pytest.mark.parametrize(
    "change", [{"seeds": (5,)}, {"repeats": 3}, {"warmup": 3}, {"base": {"page_size": 4}}]
)
def test_whatever_decides_results_begins_a_new_folder(experiment, run, change):
    assert run(experiment).directory != run(replace(experiment, **change)).directory


def test_a_file_of_the_users_that_changed_begins_a_new_folder(experiment, run, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("# one")
    own = {"policy": {"type": "python", "file": str(mine), "function": "Mine"}}
    experiment = replace(experiment, variants={**experiment.variants, "fcfs": own})
    first = run(experiment).directory
    assert run(experiment).directory == first
    mine.write_text("# another")
    assert run(experiment).directory != first


def test_results_from_before_there_were_run_hashes_are_resumed_and_drawn(experiment, run, shown):
    directory = run(experiment).directory
    lines = [json.loads(line) for line in (directory / RESULTS).read_text().splitlines()]
    for line in lines:
        del line["run_hash"], line["quick"], line["overrides"], line["config"]["files"]
    (directory / RESULTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    run.engines.clear()
    assert (run(experiment).directory, run.engines) == (directory, [])
    assert shown(directory)[0]


def test_without_resume_every_run_has_a_folder_of_its_own(experiment, run):
    assert run(experiment).directory != run(experiment, resume=False).directory


def test_a_run_that_somebody_else_writes_is_not_resumed(experiment, run):
    directory = run(experiment, build=Stops).directory
    with RecordWriter(directory), pytest.raises(ResultsError, match="another run writes to"):
        run(experiment)
    assert len(cases(run(experiment).directory)) == 6


class Here(FakeEngine):
    """Says that it is simulated where it is."""

    def __init__(self, executor=None, **settings):
        super().__init__(executor=executor, **settings)
        self.executor = "sim" if executor else "cpu"

    def get_server_info(self):
        return super().get_server_info() | {"executor": self.executor}


@pytest.fixture
def arms(experiment):
    device = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b"}
    simulated = {**experiment.base, "executor": device}
    return replace(experiment, base=simulated, repeats=1), replace(experiment, repeats=1)


def test_arms_share_a_folder(arms, run):
    directory = run(*arms, build=Here).directory
    found = [(r.arm, r.model) for r in read_records(directory)[1]]
    assert found == [("simulated", "llama-2-7b")] * 3 + [("measured", "smollm2-135m")] * 3


def test_an_arm_without_its_data_leaves_the_other_and_is_named(arms, run):
    simulated, measured = arms
    missing = replace(measured, data=DataSource("nowhere"))
    finished = run(simulated, missing, build=Here)
    assert {arm for arm, *_ in cases(finished.directory)} == {"simulated"}
    [failure] = finished.failures
    assert failure.arm == "measured"
    assert "data.path='nowhere' is not allowed" in str(failure.error)


def test_an_arm_that_fails_half_way_is_resumed_alone(arms, run):
    class Fails(Here):
        def flush_cache(self):
            if self.executor == "cpu" and self.runs == 1:
                raise ProgramError("no more")
            return super().flush_cache()

    finished = run(*arms, build=Fails)
    assert [str(failure.error) for failure in finished.failures] == ["no more"]
    run.engines.clear()
    assert len(cases(run(*arms, build=Here).directory)) == 6
    assert {engine.executor for engine in run.engines} == {"cpu"}


def test_if_no_arm_has_its_data_nothing_is_written(experiment, run, tmp_path):
    missing = replace(experiment, data=DataSource("nowhere"))
    with pytest.raises(ConfigError, match=r"data\.path='nowhere' is not allowed"):
        run(missing, missing)
    assert not (tmp_path / "out").exists()
