"""Figure, report and table from records alone."""

import io
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from sgjax.errors import ResultsError
from sgjax.lab.config import load_experiment, parse_experiment
from sgjax.lab.figures.draw import draw
from sgjax.lab.plot import redraw
from sgjax.lab.records import read_records
from sgjax.lab.report import render_report
from sgjax.lab.runner import run_experiment
from sgjax.lab.summary import summarise_arms
from sgjax.lab.table import print_summary
from tests.lab.fake_engine import FakeEngine
from tests.lab.made_up import made_up_arms

QUICKSTART = Path(__file__).parents[2] / "experiments" / "quickstart.yaml"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    experiment = load_experiment(QUICKSTART, ["workloads.mmlu.num_questions=8", "claim=a <b> & c"])
    with open(folder / "console.txt", "w") as file:
        return run_experiment(
            [experiment], folder, lambda s: FakeEngine(**s), Console(file=file)
        ).directory


@pytest.fixture
def console(tmp_path):
    with open(tmp_path / "console.txt", "w") as file:
        yield Console(file=file, width=100)


def test_redrawing_needs_nothing_but_the_records(results, console, tmp_path):
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.copy(results / "results.jsonl", moved)
    written = redraw(moved, console)
    assert [path.name for path in written] == ["figure.png", "figure.svg", "report.html"]
    assert all(path.stat().st_size > 1000 for path in written)


def test_the_same_records_give_the_same_files(results, console):
    first = [path.read_bytes() for path in redraw(results, console)]
    assert [path.read_bytes() for path in redraw(results, console)] == first


def test_the_figure_is_well_formed(results):
    images = draw(summarise_arms(read_records(results)[1]))
    assert images["png"].startswith(b"\x89PNG")
    assert ElementTree.fromstring(images["svg"]).tag.endswith("svg")


def test_two_workloads_are_drawn_side_by_side(results):
    _, records = read_records(results)
    config = records[0].config["experiment"]
    both = {**config, "workloads": {"mmlu": {"type": "mmlu"}, "other": {"type": "mmlu"}}}
    parse_experiment(both, "test")
    twice = [
        replace(r, workload=workload, config={**r.config, "experiment": both})
        for r in records
        for workload in ("mmlu", "other")
    ]
    [summary] = summarise_arms(twice)
    assert summary.workloads == ["mmlu", "other"]
    assert len(draw([summary])["svg"]) > len(draw(summarise_arms(records))["svg"])


def test_the_report_stands_alone(results):
    [summary] = summarise_arms(read_records(results)[1])
    html = render_report([summary], draw([summary])["svg"].decode())
    assert "<svg" in html
    assert "a &lt;b&gt; &amp; c" in html
    assert not re.search(r"<(script|link|img|iframe)\b", html)
    loaded = re.findall(r"(?:src|href)=[\"']([^\"'#][^\"']*)", html)
    assert loaded == []
    assert "url(http" not in html


def test_the_reports_tags_are_balanced(results):
    [summary] = summarise_arms(read_records(results)[1])
    open_tags = []

    class Balance(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag not in ("meta", "br"):
                open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Balance().feed(render_report([summary], "<svg></svg>"))
    assert open_tags == []


def test_the_report_holds_an_experiment_that_can_be_run_again(results, tmp_path):
    [summary] = summarise_arms(read_records(results)[1])
    html = render_report([summary], "<svg></svg>")
    text = re.search(r"<pre>(name: .*?)</pre>", html, re.DOTALL).group(1)
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&#39;", "'"), ("&amp;", "&")):
        text = text.replace(entity, character)
    (tmp_path / "again.yaml").write_text(text)
    assert load_experiment(tmp_path / "again.yaml", []) == summary.experiment


def test_the_table_shows_every_metric_and_verdict(results, console, tmp_path):
    [summary] = summarise_arms(read_records(results)[1])
    print_summary(summary, console)
    console.file.flush()
    text = (tmp_path / "console.txt").read_text()
    assert all(name in text for name in ("full", "no_cache", "fcfs", "hit rate bound (%)"))
    assert text.count("measured: ") == len(summary.experiment.expect)


def test_records_of_different_experiments_are_not_mixed(results):
    _, records = read_records(results)
    with pytest.raises(ResultsError, match="different experiments"):
        summarise_arms([records[0], replace(records[1], experiment="other")])


def test_more_variants_than_a_terminal_is_wide_for_fill_several_tables():
    names = [f"variant_{i}_of_many" for i in range(9)]
    data = {
        "name": "wide", "claim": "c", "variants": {name: {} for name in names},
        "workloads": {"mmlu": {"type": "mmlu"}},
    }  # fmt: skip
    (summary,) = made_up_arms(data, executors=("cpu",))
    console = Console(width=80, file=io.StringIO())
    print_summary(summary, console)
    shown = console.file.getvalue()
    assert [name for name in names if name not in shown] == []
    assert shown.count("wide · mmlu") > 1
