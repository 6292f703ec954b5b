"""The command line: exit codes, one clean line an error, what is written."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sgjax import cli
from sgjax.errors import ConfigError
from sgjax.models.presets import preset_names
from tests.lab.fake_engine import FakeEngine

QUICKSTART = "experiments/quickstart.yaml"
SMALL = "workloads.mmlu.num_questions=6"


@pytest.fixture
def invoke(monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)
    monkeypatch.setattr(cli, "_build_engine", lambda settings: FakeEngine(**settings))
    monkeypatch.setattr(cli, "_fetch_model", lambda model, console: None)
    return lambda *arguments: CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_run_writes_results_figure_and_report(invoke, tmp_path):
    done = invoke("run", QUICKSTART, SMALL, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    [directory] = (tmp_path / "quickstart").iterdir()
    names = {path.name for path in directory.iterdir()}
    assert names == {"results.jsonl", "figure.png", "figure.svg", "report.html"}
    assert "holds" in done.stdout


def test_plot_redraws_a_results_folder(invoke, tmp_path):
    invoke("run", QUICKSTART, SMALL, "--out", tmp_path)
    [directory] = (tmp_path / "quickstart").iterdir()
    (directory / "report.html").unlink()
    assert invoke("plot", directory).exit_code == 0
    assert (directory / "report.html").exists()


def test_run_all_runs_a_folder_with_overrides_and_writes_an_index(invoke, tmp_path):
    folder = tmp_path / "experiments"
    folder.mkdir()
    shutil.copy(QUICKSTART, folder)
    (folder / "traced.yaml").write_text(
        "claim: c\nworkloads: {t: {type: trace, file: t.jsonl}}\nvariants: {a: {}}"
    )
    out = tmp_path / "out"
    done = invoke("run", "--all", SMALL, "repeats=1", "--folder", folder, "--out", out)
    assert done.exit_code == 0, done.output
    assert "num_questions" in done.stdout  # the trace has no such key, and says so
    html = (out / "index.html").read_text()
    assert "quickstart/" in html
    assert invoke("plot", out).exit_code == 0


def test_run_all_finds_the_experiments_that_ship(invoke, monkeypatch, tmp_path):
    done = invoke("run", "--all", "--budget", "0", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert all(path.stem in done.stdout for path in Path("experiments").glob("*.yaml"))


def test_a_folder_without_experiments_and_a_file_that_is_a_folder_are_named(invoke, tmp_path):
    done = invoke("run", "--all", "--folder", tmp_path)
    assert f"{tmp_path} holds no experiments" in done.stderr
    assert f"--all --folder {tmp_path}" in invoke("run", tmp_path).stderr


@pytest.mark.parametrize(
    "command", [("run", "--all"), ("run", QUICKSTART, SMALL), ("view", "figure3")]
)
def test_a_folder_that_cannot_be_made_is_one_line_on_stderr(invoke, tmp_path, command):
    (tmp_path / "file").write_text("")
    done = invoke(*command, "--out", tmp_path / "file" / "out")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "ResultsError: cannot" in done.stderr


def test_a_users_mistake_is_one_line_on_stderr_and_exit_code_1(invoke, tmp_path):
    done = invoke("run", QUICKSTART, "repeat=3", "--out", tmp_path)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "ConfigError: " in done.stderr
    assert "did you mean 'repeats'?" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", range(4))
def test_debug_shows_where_an_error_arose_wherever_it_is_written(invoke, place):
    words = ["run", QUICKSTART, "repeat=3"]
    done = invoke(*words[:place], "--debug", *words[place:])
    assert isinstance(done.exception, ConfigError)


def test_an_experiment_that_ships_is_run_by_its_name(invoke, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert invoke("run", "quickstart", SMALL).exit_code == 0
    assert (tmp_path / "results" / "quickstart").is_dir()
    assert invoke("view", "run", "starvation", "--first", "3").exit_code == 0


def test_a_file_is_meant_before_what_ships_under_its_name(invoke, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").write_text("claim: mine\nworkloads: {}\nvariants: {a: {}}")
    assert "quickstart: workloads is empty" in invoke("run", "quickstart").stderr


@pytest.mark.parametrize("word", ["experiments/quickstart.yaml", "quickstrat", "quickstart.yaml"])
def test_a_file_that_is_not_there_is_answered_with_what_ships(invoke, monkeypatch, tmp_path, word):
    monkeypatch.chdir(tmp_path)
    done = invoke("run", word)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert f"no such file: {word}; did you mean 'quickstart', which ships?" in done.stderr


def test_experiments_are_listed_and_shown_to_be_copied(invoke):
    listed = invoke("experiments", "list").stdout
    assert all(path.stem in listed for path in Path("experiments").glob("*.yaml"))
    assert invoke("experiments", "show", "quickstart").stdout == Path(QUICKSTART).read_text()


def test_how_results_came_about_is_printed_as_it_was_asked_for(invoke, tmp_path):
    metrics = "metrics=[cache_hit_rate]"  # in brackets, as rich's own marks are
    done = invoke("run", QUICKSTART, SMALL, metrics, "--out", tmp_path)
    assert f"with {SMALL} {metrics}" in " ".join(done.stdout.split())


def test_a_wrong_setting_is_named_with_file_and_variant(invoke, tmp_path):
    file = tmp_path / "e.yaml"
    file.write_text(
        "claim: c\nworkloads: {m: {type: mmlu, num_questions: 4}}\n"
        "variants: {good: {}, bad: {polcy: {type: lpm}}}"
    )
    said = "e, variant 'bad': engine config: unknown key 'polcy'; did you mean 'policy'?"
    assert said in invoke("run", file, "--out", tmp_path).stderr


def test_a_key_that_is_missing_is_not_said_to_be_the_short_forms(invoke, tmp_path):
    file = tmp_path / "e.yaml"
    file.write_text("claim: c\nvariants: {a: {}}")
    assert "e.yaml: missing key 'workloads'" in invoke("run", file).stderr


def test_a_folder_without_the_data_is_named_and_no_row_blamed(invoke, tmp_path):
    done = invoke("run", QUICKSTART, f"data.path={tmp_path}", "--out", tmp_path / "out")
    assert "it must be a folder that holds" in done.stderr
    assert "a row is not in the form" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["no-such-command"],
        ["run", "--no-such-option"],
        ["run", QUICKSTART, "--budget", "3"],
        ["run", QUICKSTART, QUICKSTART],
        ["run", "--all", QUICKSTART],
    ],
)
def test_wrong_usage_is_exit_code_2(invoke, arguments):
    assert invoke(*arguments).exit_code == 2


def test_ctrl_c_is_exit_code_130_and_names_what_is_kept(invoke, monkeypatch, tmp_path):
    class Impatient(FakeEngine):
        def flush_cache(self):
            if self.runs == 2:
                raise KeyboardInterrupt
            return super().flush_cache()

    monkeypatch.setattr(cli, "_build_engine", lambda settings: Impatient(**settings))
    done = invoke("run", QUICKSTART, SMALL, "--out", tmp_path)
    assert done.exit_code == 130
    [directory] = (tmp_path / "quickstart").iterdir()
    assert f"3 timed runs are kept in {directory}" in done.stdout
    assert invoke("plot", directory).exit_code == 0


def test_version_is_printed(invoke):
    done = invoke("--version")
    assert done.exit_code == 0
    assert done.stdout.startswith("sgjax ")


def test_the_package_runs_as_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "sgjax", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("sgjax ")


def test_models_list_names_every_preset(invoke):
    done = invoke("models", "list")
    assert done.exit_code == 0
    assert all(name in done.stdout for name in preset_names())


def test_models_show_prints_the_architecture_of_a_preset(invoke):
    done = invoke("models", "show", "llama-3-8b")
    assert done.exit_code == 0
    assert "8,030,261,248" in done.stdout


@pytest.mark.parametrize("command", [("models", "pull"), ("models", "show"), ("chat", "--model")])
def test_unknown_models_are_answered_with_the_nearest(invoke, monkeypatch, command):
    monkeypatch.undo()
    done = invoke(*command, "smollm2-135")
    assert done.exit_code == 1
    assert "did you mean 'smollm2-135m'" in done.stderr


def test_run_fetches_the_checkpoints_of_its_variants_once(invoke, monkeypatch, tmp_path):
    pulled = []
    monkeypatch.setattr(cli, "_fetch_model", lambda model, console: pulled.append(model))
    assert invoke("run", QUICKSTART, SMALL, "--out", tmp_path).exit_code == 0
    assert pulled == ["smollm2-135m"]


def test_serve_says_that_there_is_no_server_yet(invoke):
    done = invoke("serve", "--model", "smollm2-135m", "--port", 30000)
    assert done.exit_code == 1
    assert "no HTTP server yet; use sgl.Engine" in done.stderr


def test_view_figure3_writes_a_page(invoke, tmp_path):
    done = invoke("view", "figure3", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "step 9" in (tmp_path / "figure3.html").read_text()


def test_view_run_records_a_variant_and_draw_draws_it_again(invoke, tmp_path):
    done = invoke("view", "run", "experiments/starvation.yaml", "--first", 5, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    pages = {name: (tmp_path / name).read_text() for name in ("tree.html", "schedule.html")}
    (tmp_path / "tree.html").unlink()
    assert invoke("view", "draw", tmp_path / "recording.json").exit_code == 0
    assert {name: (tmp_path / name).read_text() for name in pages} == pages


def test_view_run_names_the_arms_there_are(invoke, tmp_path):
    done = invoke("view", "run", "experiments/starvation.yaml", "--arm", "measured")
    assert done.exit_code == 1
    assert "has ['simulated']" in done.stderr
