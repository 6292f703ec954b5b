"""The kinds of figures, on made-up records."""

import re
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation

from sgjax.errors import ConfigError
from sgjax.lab.config import parse_experiment
from sgjax.lab.figures.bars import draw_bars
from sgjax.lab.figures.draw import draw
from sgjax.lab.figures.lines import draw_lines, x_value
from sgjax.lab.figures.scatter import draw_scatter, pareto_front
from sgjax.lab.figures.style import STYLE
from sgjax.lab.metrics import METRICS
from sgjax.lab.summary import Stat
from tests.lab.made_up import made_up_arms

HIT, RATE = "cache_hit_rate", "throughput_programs_per_s"
MMLU = {"mmlu": {"type": "mmlu"}}
NAMES = ("fcfs", "random", "lpm", "dfs_weight", "aged_lpm", "k_lpm", "hrrn", "vtc")
POLICIES = {name: {} for name in NAMES}
SWEEP = {
    f"{order}_{room}": {"kv_tokens": room, "eviction": {"type": order}}
    for order in ("lru", "fifo")
    for room in (100, 200, 400)
}
BASE = {"name": "figure", "claim": "a claim", "workloads": MMLU, "seeds": [0, 1, 2]}
REFERENCE = {RATE: {"relative_to": "lpm", "values": {"mmlu": {"fcfs": {"range": [0.2, 0.45]}}}}}

FIGURES = {
    "bars": {"variants": {"a": {}, "b": {}}},
    "many bars": {"variants": POLICIES},
    "compare": {
        "variants": POLICIES,
        "reference": REFERENCE,
        "figure": {"type": "compare", "panels": [RATE, HIT]},
    },
    "scatter": {"variants": POLICIES, "figure": {"type": "scatter", "panels": [[HIT, RATE]]}},
    "lines": {
        "variants": SWEEP,
        "figure": {"type": "lines", "x": "kv_tokens", "lines": "eviction.type", "panels": [HIT]},
    },
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_kind_is_drawn(name):
    files = draw(made_up_arms({**BASE, **FIGURES[name]}))
    assert files["png"].startswith(b"\x89PNG")
    assert ElementTree.fromstring(files["svg"]).tag.endswith("svg")


def test_the_same_records_give_the_same_files():
    arms = made_up_arms({**BASE, **FIGURES["scatter"]}, executors=("sim",))
    assert draw(arms) == draw(arms)


@pytest.mark.parametrize(("variants", "ticks"), [(["only"], [""]), (["a", "b"], ["a", "b"])])
def test_bars_of_a_single_variant_are_told_apart_by_their_workloads(variants, ticks):
    two = {"ours": MMLU["mmlu"], "theirs": MMLU["mmlu"]}
    data = {**BASE, "workloads": two, "variants": {name: {} for name in variants}}
    arms = made_up_arms({**data, "figure": {"type": "bars", "panels": [RATE]}}, executors=("sim",))
    (axes,) = draw_bars(arms[0].experiment.figure, arms).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ticks * len(two)
    assert {"ours", "theirs"} <= set(texts_of(axes))


def test_a_variant_that_could_not_run_is_seen_as_such_beside_the_others():
    data = {**BASE, "variants": {"a": {}, "b": {}}, "figure": {"type": "bars", "panels": [RATE]}}
    [arm] = made_up_arms(data, executors=("sim",))
    failed = replace(arm, stats=arm.stats | {("mmlu", "b"): {}})
    [axes] = draw_bars(arm.experiment.figure, [failed]).axes
    [none] = [text for text in axes.texts if text.get_text() == "none"]
    left, right = axes.get_xlim()
    assert left < none.xy[0] < right
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a", "b"]


def test_a_variant_without_a_point_is_named_above_the_others():
    [arm] = made_up_arms({**BASE, **FIGURES["scatter"]}, executors=("sim",))
    failed = replace(arm, stats=arm.stats | {("mmlu", "vtc"): {}})
    [axes] = draw_scatter(arm.experiment.figure, [failed]).axes
    assert axes.get_title("left") == "mmlu (no value: vtc)"


def texts_of(axes):
    return [text.get_text() for text in axes.texts]


def draw_compare_panels():
    from sgjax.lab.figures.compare import draw_compare

    arms = made_up_arms({**BASE, **FIGURES["compare"]})
    spec = arms[0].experiment.figure
    return arms, draw_compare(spec, arms).axes


def test_compared_bars_stand_beside_the_papers_with_absolute_values():
    arms, (relative, absolute) = draw_compare_panels()
    texts = texts_of(relative)
    at = texts.index("0.2–0.45")
    simulated = arms[0].relative("mmlu", "fcfs", RATE, "lpm")
    assert texts[at + 1] == f"{simulated.median:.3g}"
    rate = METRICS[RATE].show(arms[0].stats["mmlu", "fcfs"][RATE].median)
    assert texts[at + 2].startswith(f"{rate} programs/s · ")
    assert re.search(r" · peak K/V \S+ MB$", texts[at + 2])
    assert len(texts) == 2 * 8 * 2 + 2  # value and absolutes of each bar; the paper's two values
    assert "lpm = 1" in relative.get_title("left")
    assert "lpm = 1" not in absolute.get_title("left")


def test_a_relative_value_is_taken_seed_by_seed():
    [arm] = made_up_arms({**BASE, "variants": {"a": {}, "b": {}}}, executors=("sim",))
    of = {(r.variant, r.seed): r.metrics[RATE] for r in arm.records}
    ratios = sorted(of["b", seed] / of["a", seed] for seed in (0, 1, 2))
    stat = arm.relative("mmlu", "b", RATE, "a")
    assert (stat.low, stat.median, stat.high, stat.runs) == (*ratios, 3)
    assert arm.relative("mmlu", "b", RATE, "c") is None


def test_labels_of_points_do_not_cover_each_other():
    arms = made_up_arms({**BASE, **FIGURES["scatter"]}, executors=("sim",))
    with matplotlib.rc_context(STYLE):
        figure = draw_scatter(arms[0].experiment.figure, arms)
        renderer = FigureCanvasAgg(figure).get_renderer()
        labels = [text for text in figure.axes[0].texts if isinstance(text, Annotation)]
        boxes = [label.get_window_extent(renderer) for label in labels]
    assert sorted(label.get_text() for label in labels) == sorted(POLICIES)
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]


def test_what_is_achieved_of_the_optimum_stands_beside_every_hit_rate():
    share = "share_of_optimal_hit_rate"
    for asked, shown in (([HIT], (HIT, share)), ([share, HIT], (share, HIT)), ([RATE], (RATE,))):
        [arm] = made_up_arms({**BASE, "variants": {"a": {}}, "metrics": asked}, executors=("sim",))
        assert arm.metrics == shown


def test_points_that_look_like_one_share_a_label():
    [arm] = arms = made_up_arms({**BASE, **FIGURES["scatter"]}, executors=("sim",))
    alike = dict.fromkeys(arm.stats, arm.stats["mmlu", "fcfs"])
    arms = [replace(arm, stats=alike | {("mmlu", "lpm"): arm.stats["mmlu", "lpm"]})]
    [axes] = draw_scatter(arms[0].experiment.figure, arms).axes
    others = ", ".join(name for name in NAMES if name != "lpm")
    assert sorted(" ".join(t.split()) for t in texts_of(axes)) == sorted([others, "lpm"])


def test_the_front_holds_what_nobody_beats():
    def point(name, x, y):
        return name, Stat(x, x, x, 1), Stat(y, y, y, 1)

    points = [point("a", 0.9, 5), point("b", 0.5, 1), point("c", 0.4, 1), point("d", 0.8, 6)]
    front = pareto_front(points, HIT, "wait_p99_s")  # more hits, shorter waits
    assert [name for name, *_ in front] == ["b", "a"]
    front = pareto_front(points, HIT, RATE)
    assert [name for name, *_ in front] == ["d", "a"]


def test_a_sweep_has_a_line_a_value_with_its_points_in_order():
    arms = made_up_arms({**BASE, **FIGURES["lines"]}, executors=("sim",))
    [axes] = draw_lines(arms[0].experiment.figure, arms).axes
    lines = {line.get_label(): list(line.get_xdata()) for line in axes.lines}
    assert lines == {"lru": [100, 200, 400], "fifo": [100, 200, 400]}


def test_variants_that_differ_in_x_alone_are_a_line_of_the_first_ones_name():
    aged = {"policy": {"type": "aged_lpm"}}
    variants = {"lpm": {}, "aged": aged, "held": {"policy": {"type": "aged_lpm", "hold_s": 4}}}
    swept = {
        f"{name}_{k}": {**own, "kv_tokens": k} for name, own in variants.items() for k in (1, 2)
    }
    figure = {"type": "lines", "x": "kv_tokens", "lines": "variant", "panels": [HIT]}
    data = {**BASE, "variants": swept, "figure": figure}
    [axes] = draw_lines(
        parse_experiment(data, "").figure, made_up_arms(data, executors=("sim",))
    ).axes
    lines = {line.get_label(): list(line.get_xdata()) for line in axes.lines}
    assert lines == {"lpm_1": [1, 2], "aged_1": [1, 2], "held_1": [1, 2]}


def test_several_workloads_of_a_sweep_share_colours_and_differ_in_their_dashes():
    data = {**BASE, **FIGURES["lines"], "workloads": {"a": MMLU["mmlu"], "b": MMLU["mmlu"]}}
    [axes] = draw_lines(
        parse_experiment(data, "").figure, made_up_arms(data, executors=("sim",))
    ).axes
    styles = {line.get_label(): (line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert list(styles) == ["lru, a", "fifo, a", "lru, b", "fifo, b"]
    assert styles["lru, a"][0] == styles["lru, b"][0] != styles["fifo, a"][0]
    assert styles["lru, a"][1] == styles["fifo, a"][1] != styles["lru, b"][1]


def test_workloads_that_differ_in_more_than_x_are_on_lines_of_their_own():
    nested = {
        f"n{num}_d{depth}": {"type": "nested", "num_requests": num, "depth": depth, "step": 8}
        for num in (500, 2000)
        for depth in (2, 16)
    }
    figure = {"type": "lines", "x": "workload.num_requests", "panels": [HIT]}
    data = {**BASE, "workloads": nested, "variants": {"lpm": {}}, "figure": figure}
    [axes] = draw_lines(
        parse_experiment(data, "").figure, made_up_arms(data, executors=("sim",))
    ).axes
    lines = {line.get_label(): list(line.get_xdata()) for line in axes.lines}
    assert lines == {"lpm, depth 2": [500, 2000], "lpm, depth 16": [500, 2000]}
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["500", "2,000"]


def test_a_sweep_is_drawn_in_the_terms_of_the_papers_values():
    reference = {HIT: {"relative_to": "lru_100", "values": {"mmlu": {"lru_400": 1.5}}}}
    data = {**BASE, **FIGURES["lines"], "reference": reference}
    arms = made_up_arms(data, executors=("sim",))
    [axes] = draw_lines(arms[0].experiment.figure, arms).axes
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["lru"].get_ydata()[0] == pytest.approx(1.0)
    assert list(lines["lru, paper"].get_xydata()[-1]) == [400, 1.5]
    assert axes.get_title("left") == "cache hit rate, lru_100 = 1"


def test_what_varies_may_be_a_metric_or_a_workloads_key():
    data = {**BASE, "workloads": {"few": {"type": "mmlu", "shots": 2}}, "variants": SWEEP}
    for x in (HIT, "workload.shots"):
        data["figure"] = {"type": "lines", "x": x, "panels": [RATE]}
        [arm] = made_up_arms(data, executors=("sim",))
        hits = arm.stats["few", "lru_100"][HIT].median * 100
        expected = hits if x == HIT else 2
        assert x_value(arm.experiment.figure, arm, "few", "lru_100") == expected


def test_a_sweep_over_what_is_no_number_is_refused():
    data = {**BASE, **FIGURES["lines"]}
    data["figure"] = {"type": "lines", "x": "eviction.type", "panels": [HIT]}
    [arm] = made_up_arms(data, executors=("sim",))
    with pytest.raises(ConfigError, match=r"x='eviction\.type' is 'lru' for lru_100 on mmlu"):
        draw([arm])


@pytest.mark.parametrize(
    ("figure", "complaint"),
    [
        ({"type": "scatter", "panels": [["cache_hitrate", RATE]]}, "did you mean 'cache_hit_rate'"),
        ({"type": "compare", "panels": [RATE], "beside": ["peak_kv"]}, "'peak_kv_bytes'"),
        ({"type": "pie"}, "unknown type 'pie'"),
    ],
)
def test_unknown_names_in_figures_are_refused(figure, complaint):
    with pytest.raises(ConfigError, match=complaint):
        parse_experiment({**BASE, "variants": {"a": {}}, "figure": figure}, "test")
