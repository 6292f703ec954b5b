"""How results came about, in words, wherever their verdicts are shown."""

import re
from dataclasses import replace

import pytest
from rich.console import Console

from sgjax.lab.campaign import run_all
from sgjax.lab.config import has_short_form, load_arms
from sgjax.lab.index import Entry, write_index
from sgjax.lab.made import made
from sgjax.lab.records import Asked
from sgjax.lab.report import render_report
from sgjax.lab.runner import run_experiment
from sgjax.lab.summary import summarise_arms
from tests.lab.fake_engine import FakeEngine
from tests.lab.made_up import made_up

DATA = {
    "name": "e", "claim": "c", "workloads": {"mmlu": {"type": "mmlu"}}, "variants": {"a": {}},
    "seeds": [0, 1], "expect": ["a.cache_hit_rate > 0"],
}  # fmt: skip
FILE = """
claim: a cache helps
workloads: {mmlu: {type: mmlu, num_questions: 4}}
variants: {full: {cache: {type: tree}}}
figure: {type: bars, panels: [cache_hit_rate]}
expect: [full.cache_hit_rate > 0]
"""


def records(**changes):
    changes = {"quick": False, "git_sha": "0123456789abcdef+changes", **changes}
    return [replace(r, **changes) for r in made_up(DATA)]


def chips(html):
    return set(re.findall(r'<span class="chip ([^"]*)">([^<]*)</span>', html))


def test_form_seeds_time_commit_and_devices_are_said():
    assert made(records()).words == (
        "full form", "2 seeds", "2026-01-01 00:00 UTC", "commit 0123456789ab+changes",
        "simulated on a device", "measured on a device",
    )  # fmt: skip


def test_a_run_over_days_and_commits_names_them_all():
    first, *rest = records()
    installed = {"git_sha": None, "versions": {"sgjax": "1.2"}}
    late = replace(rest[-1], started="2026-01-02T03:04:05+00:00", **installed)
    found = made([first, late])
    assert found.when == "2026-01-01 00:00 to 2026-01-02 03:04 UTC"
    assert found.commits == ("commit 0123456789ab+changes", "sgjax 1.2, no checkout")


def test_one_row_of_the_short_form_makes_the_run_a_quick_one():
    rows = records()
    assert made([*rows, replace(rows[0], quick=True)]).form == "quick"


def test_what_the_command_line_changed_is_said_and_a_path_to_data_changes_nothing():
    changed = made(records(overrides=["repeats=1", "data.path=x"]))
    assert (changed.form, changed.words[1]) == ("changed", "with repeats=1 data.path=x")
    drawn = ["data.path=x", "figure.panels=[accuracy]", "metrics=[accuracy]"]
    assert made(records(overrides=drawn)).form == "full"


def test_old_rows_do_not_say_and_are_not_taken_for_the_full_form():
    assert made(records(quick=None)).form == "form unknown"


def test_a_verdict_of_the_short_form_looks_otherwise_in_index_and_report(tmp_path):
    for quick, chip in ((False, ("holds", "holds")), (True, ("holds partly", "holds, quick"))):
        arms = summarise_arms(records(quick=quick))
        html = write_index(tmp_path, [Entry("e", "c", None, arms, (), 0.0)]).read_text()
        assert chips(html) == {chip}
        assert ("<b>0</b> in full form" in html) is quick
        assert "2 seeds · 2026-01-01 00:00 UTC" in html
        assert "other code than this page" in html
        report = render_report(arms, "<svg></svg>")
        assert ('<span class="word">holds, quick:</span>' in report) is quick


def test_rows_and_the_final_table_say_that_the_short_form_was_asked_for(tmp_path):
    file, text = tmp_path / "e.yaml", tmp_path / "console.txt"
    file.write_text(FILE + "quick: {workloads.mmlu.num_questions: 2}")
    with open(text, "w") as out:
        console = Console(file=out, width=100)

        def run(path, title):
            arms = load_arms(path, [], quick=True)
            asked = Asked(quick=has_short_form(path), overrides=("data.path=x",))
            return run_experiment(
                arms, tmp_path / "out", lambda s: FakeEngine(**s), console, asked=asked
            )

        [entry] = run_all([file], tmp_path / "out", run, console, None).entries
    assert {(r.quick, *r.overrides) for r in entry.arms[0].records} == {(True, "data.path=x")}
    assert re.search(r"e\W+holds\W+quick\W", text.read_text())


def test_a_file_without_a_short_form_is_run_in_full_also_when_asked_to_be_quick(tmp_path):
    file = tmp_path / "e.yaml"
    file.write_text(FILE)
    assert not has_short_form(file)
    file.write_text(FILE + "quick: {workloads.mmlu.num_questions: 2}")
    assert has_short_form(file)


@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_seeds_that_change_nothing_are_said_to_be_one_run(spread):
    arms = summarise_arms(made_up(DATA, spread=spread))
    said = [remark for arm in arms for remark in arm.remarks if "depends on the seed" in remark]
    one = "mmlu: nothing in it depends on the seed; the 2 seeds are one run."
    assert said == ([] if spread else [one, one])
