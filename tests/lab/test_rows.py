"""What a researcher does next with results: rows, two runs compared, other figures of the same."""

import csv
import io
import json
from dataclasses import asdict

import pytest
from rich.console import Console

from sgjax.errors import ConfigError, ResultsError
from sgjax.lab.plot import redraw
from sgjax.lab.rows import as_csv, rows
from sgjax.lab.versus import changes, print_comparison
from tests.lab.made_up import made_up, made_up_arms

DATA = {
    "name": "rows",
    "claim": "a claim",
    "workloads": {"a": {"type": "mmlu", "shots": 1}, "b": {"type": "mmlu", "shots": 2}},
    "variants": {"small": {"kv_tokens": 100}, "large": {"kv_tokens": 200}},
    "seeds": [0, 1],
    "metrics": ["cache_hit_rate"],
}


@pytest.fixture
def write(tmp_path):
    def write(name, **options):
        folder = tmp_path / "rows" / name
        folder.mkdir(parents=True)
        lines = [json.dumps(asdict(record)) for record in made_up(DATA, **options)]
        (folder / "results.jsonl").write_text("".join(f"{line}\n" for line in lines))
        return folder

    return write


def test_a_row_says_what_was_run_which_settings_varied_and_what_was_measured(write):
    table = rows(write("one", executors=("sim",)))
    assert len(table) == 2 * 2 * 2
    first = table[0]
    told = ("workload", "variant", "seed", "arm", "engine.kv_tokens", "workload.shots")
    assert [first[name] for name in told] == ["a", "small", 0, "simulated", 100, 1]
    assert 0 < first["cache_hit_rate"] < 1
    assert "workload.type" not in first  # it is the same everywhere


def test_all_results_below_a_folder_are_one_table(write, tmp_path):
    write("one"), write("two")
    assert len(rows(tmp_path)) == 2 * len(rows(tmp_path / "rows" / "one"))
    with pytest.raises(ResultsError, match="give a results folder"):
        rows(tmp_path / "nothing")


def test_values_separated_by_commas_read_back_with_a_column_for_all_that_any_row_has():
    text = as_csv([{"a": 1, "b": "x,y"}, {"a": 2, "c": 0.5}])
    assert list(csv.DictReader(io.StringIO(text))) == [
        {"a": "1", "b": "x,y", "c": ""},
        {"a": "2", "b": "", "c": "0.5"},
    ]


def test_changes_are_told_with_their_factor_and_whether_the_runs_lie_apart():
    [before] = made_up_arms(DATA, executors=("sim",), seed=1)
    [after] = made_up_arms(DATA, executors=("sim",), seed=2)
    found = list(changes(before, after, "a"))
    names = [(change.metric, change.variant) for change in found]
    assert names[:2] == [("cache_hit_rate", "small"), ("cache_hit_rate", "large")]
    for change in found:
        values = change.before, change.after
        assert change.factor == pytest.approx(values[1].median / values[0].median)
        ranges = sorted((stat.low, stat.high) for stat in values)
        assert change.is_apart == (ranges[0][1] < ranges[1][0])
    assert not any(change.is_apart for change in changes(before, before, "a"))


def test_a_comparison_names_both_runs_values(write, tmp_path):
    paths = write("one", seed=1), write("two", seed=2)
    with open(tmp_path / "console.txt", "w+") as file:
        print_comparison(paths, Console(file=file, width=120))
        file.seek(0)
        text = file.read()
    assert all(
        part in text for part in ("a · simulated", "b · measured", "second / first", "small")
    )


def test_runs_with_nothing_in_common_are_not_compared(write):
    paths = write("one", executors=("sim",)), write("two", executors=("cpu",))
    with pytest.raises(ResultsError, match="no variant on a workload in common"):
        print_comparison(paths, Console(quiet=True))


def test_the_same_results_can_be_drawn_as_another_figure_and_not_judged_anew(write):
    folder, quiet = write("one"), Console(quiet=True)
    redraw(folder, quiet)
    before = (folder / "figure.png").read_bytes()
    lines = "figure={type: lines, x: kv_tokens, panels: [cache_hit_rate]}"
    redraw(folder, quiet, [lines, "figure.log=true"])
    assert (folder / "figure.png").read_bytes() != before
    for override in ("expect=[]", "seeds=[0]", "figures.x=3"):
        with pytest.raises(ConfigError, match="run the experiment again"):
            redraw(folder, quiet, [override])
    with pytest.raises(ConfigError, match="did you mean 'cache_hit_rate'"):
        redraw(folder, quiet, ["metrics=[cache_hitrate]"])
