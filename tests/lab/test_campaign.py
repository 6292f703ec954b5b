"""All experiments of a folder: what becomes of each, and the index over them."""

import json
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from sgjax.errors import ResultsError
from sgjax.lab.campaign import index_of, run_all
from sgjax.lab.config import load_arms
from sgjax.lab.expect import Verdict
from sgjax.lab.index import claim_word, paper_rows, write_index
from sgjax.lab.runner import run_experiment
from tests.lab.fake_engine import FakeEngine
from tests.lab.made_up import made_up_arms

FIRST = """
claim: a cache helps
workloads: {mmlu: {type: mmlu, num_questions: 4}}
variants: {full: {cache: {type: tree}}, no_cache: {cache: {type: none}}}
figure: {type: bars, panels: [cache_hit_rate]}
expect: [full.cache_hit_rate > no_cache.cache_hit_rate]
"""
FILES = {
    "a_holds": FIRST,
    "b_fails": FIRST.replace("full.cache_hit_rate >", "2 * no_cache.cache_hit_rate >"),
    "c_no_data": FIRST + "data: {path: nowhere}",
    "d_invalid": "claim: [",
    "e_holds": FIRST.replace("a cache helps", "a <cache> & more"),
}


@pytest.fixture
def campaign(tmp_path):
    folder = tmp_path / "experiments"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / f"{name}.yaml").write_text(text)

    def campaign(build=FakeEngine, budget_s=None, names=tuple(FILES)):
        with open(tmp_path / "console.txt", "w") as file:
            console = Console(file=file, width=100)

            def run(path, title):
                arms = load_arms(path, [])
                return run_experiment(
                    arms, tmp_path / "out", lambda s: build(**s), console, title=title
                )

            files = [folder / f"{name}.yaml" for name in names]
            return run_all(files, tmp_path / "out", run, console, budget_s)

    return campaign


def words(done):
    return {entry.name: entry.word for entry in done.entries}


def test_each_experiment_is_judged_and_one_that_cannot_run_stops_nobody(campaign, tmp_path):
    done = campaign()
    assert words(done) == {
        "a_holds": "holds",
        "b_fails": "does not hold",
        "c_no_data": "not run here",
        "d_invalid": "not run here",
        "e_holds": "holds",
    }
    reasons = {entry.name: entry.reasons for entry in done.entries}
    assert "data.path='nowhere' is not allowed" in reasons["c_no_data"][0]
    assert "not valid YAML" in reasons["d_invalid"][0]
    text = (tmp_path / "console.txt").read_text()
    assert re.search(r"5 of 5 · e_holds · \d+\.\d minutes", text)


def test_an_unforeseen_failure_is_kept_with_its_traceback(campaign):
    class Broken(FakeEngine):
        def flush_cache(self):
            raise ZeroDivisionError("a mistake")

    done = campaign(build=Broken, names=("a_holds", "c_no_data"))
    assert words(done) == {"a_holds": "not run here", "c_no_data": "not run here"}
    first, second = done.entries
    assert first.reasons == ("it failed: ZeroDivisionError: a mistake",)
    assert "Traceback" in first.crash
    assert second.crash == ""
    assert "Traceback" in done.index.read_text()


def test_after_the_budget_nothing_is_begun(campaign):
    done = campaign(budget_s=0.0, names=("a_holds",))
    assert words(done) == {"a_holds": "not run here"}
    assert done.entries[0].reasons == ("the 0 minutes were spent before",)
    assert done.entries[0].claim == "a cache helps"


def test_ctrl_c_ends_the_campaign_and_names_the_rest(campaign):
    class Stopped(FakeEngine):
        def flush_cache(self):
            raise KeyboardInterrupt

    done = campaign(build=Stopped, names=("a_holds", "e_holds"))
    assert done.interrupted
    assert [entry.reasons for entry in done.entries] == [
        ("stopped from the keyboard",),
        ("the campaign was stopped before",),
    ]


def test_the_index_stands_alone_and_its_links_lead_to_reports(campaign, tmp_path):
    html = campaign().index.read_text()
    assert not re.search(r"<(script|link|iframe)\b", html)
    assert all(src.startswith("data:") for src in re.findall(r'src="([^"]*)"', html))
    links = [link for link in re.findall(r'href="([^"]*)"', html) if not link.startswith("#")]
    assert len(links) == 3
    assert all((tmp_path / "out" / link).is_file() for link in links)
    assert "a &lt;cache&gt; &amp; more" in html
    open_tags = []

    class Balance(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag not in ("meta", "br", "img"):
                open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Balance().feed(html)
    assert open_tags == []


def test_the_index_is_made_again_from_the_newest_results_alone(campaign, tmp_path):
    done = campaign(names=("a_holds", "b_fails"))
    campaign(names=("a_holds",))
    done.index.unlink()
    killed = tmp_path / "out" / "a_holds" / "99999999-000000"
    killed.mkdir()
    (killed / "results.jsonl").touch()
    html = index_of(tmp_path / "out").read_text()
    newest = sorted((tmp_path / "out" / "a_holds").iterdir())[-2]
    assert f"a_holds/{newest.name}/report.html" in html
    assert "<b>1</b> claims hold, <b>1</b> do not hold" in html


def test_results_that_lack_runs_or_an_arm_are_no_verdict_on_the_claim(campaign, tmp_path):
    [entry] = campaign(names=("a_holds",)).entries
    file = entry.directory / "results.jsonl"
    first, second = [json.loads(line) for line in file.read_text().splitlines()]

    def claim():
        html = index_of(tmp_path / "out").read_text()
        return re.search(r'class="chip [^"]*">([^<]*)<', html).group(1), html

    assert claim()[0] == "holds"
    both = ["simulated", "measured"]
    file.write_text("".join(json.dumps({**r, "arms": both}) + "\n" for r in (first, second)))
    word, html = claim()
    assert word == "not run here"
    assert "simulated: there are no runs of it" in html
    file.write_text(json.dumps(first) + "\n")
    word, html = claim()
    assert word == "not run here"
    assert "measured: 1 of 2 timed runs were made" in html


def test_a_folder_without_results_has_no_index(tmp_path):
    with pytest.raises(ResultsError, match="holds no results"):
        index_of(tmp_path)


@pytest.mark.parametrize(
    ("verdicts", "incomplete", "word"),
    [
        ([True, True], False, "holds"),
        ([True, False, None], True, "does not hold"),
        ([True, None], False, "not run here"),
        ([True, True], True, "not run here"),
        ([], False, "not judged"),
        ([], True, "not run here"),
    ],
)
def test_a_claim_holds_if_all_holds_and_all_was_run(verdicts, incomplete, word):
    assert claim_word([Verdict("", holds, "") for holds in verdicts], incomplete) == word


def test_the_papers_values_stand_beside_those_of_both_arms(tmp_path):
    arms = made_up_arms(
        {
            "name": "e",
            "claim": "c",
            "workloads": {"mmlu": {"type": "mmlu"}},
            "variants": {"ours": {}, "theirs": {}},
            "reference": {
                "throughput_programs_per_s": {
                    "relative_to": "ours",
                    "values": {"mmlu": {"theirs": {"range": [0.1, 0.3]}}},
                }
            },
        }
    )
    [row] = paper_rows(arms)
    ratios = [a.relative("mmlu", "theirs", "throughput_programs_per_s", "ours") for a in arms]
    assert (row.workload, row.variant, row.paper) == ("mmlu", "theirs", "0.1 to 0.3")
    assert row.metric == "throughput (programs/s), ours = 1"
    assert row.arms == tuple(f"{ratio.median:.3g}" for ratio in ratios)
    assert write_index(tmp_path, []).is_file()
