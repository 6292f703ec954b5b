"""What the recorder notes, and the pages made of it."""

import json
import random
import re

import numpy as np
import pytest

import sgjax as sgl
from sgjax.cache import InsertReason, LeastRecentlyUsed, PagePool, RadixTree
from sgjax.errors import ConfigError, ResultsError
from sgjax.lab.config import parse_experiment
from sgjax.lab.views.figure3 import as_text, figure3
from sgjax.lab.views.pages import schedule_page, tree_page
from sgjax.lab.views.record import record_run
from sgjax.lab.views.recorder import Recorder, Recording

FAMILIES = {
    "name": "views",
    "claim": "c",
    "base": {
        "executor": {"type": "sim", "hardware": "a10g", "model": "llama-2-7b"},
        "kv_tokens": 700,
        "page_size": 16,
        "token_budget": 64,
        "max_running": 8,
    },
    "variants": {"lpm": {}, "no_cache": {"cache": {"type": "none"}}},
    "workloads": {
        "two": {
            "type": "families",
            "families": {
                "a": {"share": 1, "prefix": 200, "own": 20, "output": 60},
                "b": {"share": 1, "prefix": 0, "own": 90, "output": 60},
            },
            "num_requests": 30,
            "rate_per_s": 20,
        }
    },
}


def replayed(frames):
    """Replay a recording's changes as the page does: node -> (parent, tokens, text)."""
    nodes = {}
    for change in (change for frame in frames for change in frame.changes):
        if change.kind == "evict":
            assert change.node not in {parent for parent, _, _ in nodes.values()}
            del nodes[change.node]
            continue
        nodes[change.node] = (change.parent, change.tokens, change.text)
        if change.lower is not None:
            lower, tokens, text = change.lower
            nodes[lower] = (change.node, tokens, text)
    return nodes


def test_the_changes_alone_rebuild_the_tree():
    rng = random.Random(0)
    pool = PagePool(num_pages=61, page_size=2)
    tree = RadixTree(pool, LeastRecentlyUsed())
    recorder = Recorder("random", as_text)
    tree.listen(recorder.changed)
    for step in range(300):
        key = np.array([rng.choice((97, 98)) for _ in range(2 * rng.randint(1, 9))], np.int64)
        match = tree.match(key)
        tree.pin(match.node)
        missing = (len(key) - match.num_tokens) // 2
        tree.evict(max(0, missing - pool.num_free))
        pages = np.concatenate([match.pages, pool.alloc(missing)])
        tree.insert(key, pages, match.num_tokens, InsertReason.FINISHED)
        tree.unpin(match.node)
        recorder.look(str(step), "", step, {})
    frames = recorder.recording().frames
    kinds = {change.kind for frame in frames for change in frame.changes}
    assert kinds == {"insert", "split", "trim", "evict"}
    real, stack = {}, list(tree.root.children.values())
    while stack:
        node = stack.pop()
        real[node.id] = (node.parent.id, len(node.key), as_text(node.key))
        stack.extend(node.children.values())
    assert replayed(frames) == real


@pytest.fixture(scope="module")
def recorded():
    """A recording of a run under pressure, and the engine's counters at its end."""
    infos = []

    class Watched(sgl.Engine):
        def shutdown(self):
            infos.append(self.get_server_info())
            super().shutdown()

    experiment = parse_experiment(FAMILIES, "test")
    recording = record_run(experiment, "two", "lpm", 25, lambda s: Watched(**s))
    return recording, infos[0]


def spans(recording, *kinds):
    return [span for lane in recording.lanes for span in lane.spans if span.kind in kinds]


def test_all_that_was_computed_is_on_a_lane(recorded):
    recording, info = recorded
    assert len(recording.lanes) == 25
    assert (
        sum(span.tokens for span in spans(recording, "extend", "decode"))
        == (info["computed_tokens"])
    )


def test_retractions_are_seen(recorded):
    recording, info = recorded
    assert info["retractions"] > 0
    assert len(spans(recording, "retracted")) == info["retractions"]


def test_a_lane_has_no_gaps_from_arrival_to_end(recorded):
    for lane in recorded[0].lanes:
        assert lane.spans[0].kind == "wait"
        ends = [span.end_s for span in lane.spans[:-1]]
        assert ends == pytest.approx([span.begin_s for span in lane.spans[1:]])


def test_pins_name_nodes_that_are_in_the_tree(recorded):
    frames = recorded[0].frames
    held = 0
    for at, frame in enumerate(frames):
        before = {0, *replayed(frames[:at])}
        now = {0, *replayed(frames[: at + 1])}
        held += len(frame.pins)
        assert set(frame.pins.values()) <= before | now
    assert held > len(frames)


def test_a_recording_comes_back_from_json(recorded):
    assert Recording.from_json(recorded[0].to_json()) == recorded[0]
    with pytest.raises(ResultsError, match="no recording"):
        Recording.from_json("{}")


def test_without_a_cache_there_is_a_schedule_alone():
    experiment = parse_experiment(FAMILIES, "test")
    recording = record_run(experiment, "two", "no_cache", 5, lambda s: sgl.Engine(**s))
    assert not [change for frame in recording.frames for change in frame.changes]
    assert len(recording.lanes) == 5


def test_unknown_variants_are_answered_with_the_nearest():
    experiment = parse_experiment(FAMILIES, "test")
    with pytest.raises(ConfigError, match="no 'lmp'; did you mean 'lpm'"):
        record_run(experiment, "two", "lmp", 5, lambda s: sgl.Engine(**s))


def test_a_cluster_is_not_shown_as_if_it_were_one_engine():
    variants = {"four": {"cluster": {"workers": 4}}}
    experiment = parse_experiment({**FAMILIES, "variants": variants}, "test")
    with pytest.raises(ConfigError, match="served by several workers"):
        record_run(experiment, "two", "four", 5, lambda s: sgl.Engine(**s))


def test_figure_3_splits_and_evicts_what_the_paper_does():
    recording = figure3()
    assert len(recording.frames) == 9
    evicted = {
        frame.title: [c.text.split()[0] for c in frame.changes if c.kind == "evict"]
        for frame in recording.frames
    }
    assert {title: texts for title, texts in evicted.items() if texts} == {
        "step 5": ["Solve"],  # the first chat's last turn
        "step 8": ["Go", "Tell"],  # all of the second chat
        "step 9": ["how", "and", "but"],  # the other questions
    }
    split = [f.title for f in recording.frames for c in f.changes if c.kind == "split"]
    assert split == ["step 4", "step 7"]


@pytest.mark.parametrize("page", [tree_page, schedule_page])
def test_a_page_stands_alone_and_holds_the_recording(page, recorded):
    recording = Recording("a </script> & <b>", recorded[0].frames, recorded[0].lanes)
    html = page(recording)
    assert not re.search(r"(src|href)=|<link|url\((?!#)|https?://(?!www\.w3\.org)", html)
    assert html.count("</script>") == 2
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', html).group(1)
    assert Recording.from_json(json.dumps(json.loads(data))) == recording
