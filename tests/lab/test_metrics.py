"""Metrics from hand-made counters and outcomes."""

import math

import pytest

from sgjax.errors import ConfigError
from sgjax.lab.metrics import COUNTERS, METRICS, Metric, measure
from sgjax.lab.workloads import Outcome, Ran
from sgjax.theory.bound import HitRateBound

BEFORE = dict.fromkeys(COUNTERS, 100) | {"plan_s": 1.0, "commit_s": 1.0, "device_s": 5.0}
AFTER = BEFORE | {
    "prompt_tokens": 1100, "cached_tokens": 850, "computed_tokens": 350, "forced_tokens": 103,
    "forward_passes": 110, "rows": 140, "compilations": 100, "peak_pages": 77,
    "page_bytes": 1000,
    "plan_s": 1.5, "commit_s": 1.25, "device_s": 7.25, "cache_s": 100.5,
}  # fmt: skip
OUTCOMES = tuple(Outcome("A", i < 3, float(i), i / 2, 2) for i in range(4))
BOUND = HitRateBound(prompt_tokens=1000, tree_tokens=200, least_computed=250)


def test_metrics_are_differences_of_counters_and_statistics_of_outcomes():
    metrics = measure(Ran(OUTCOMES, ()), BEFORE, AFTER, elapsed_s=4.0, bound=BOUND)
    expected = {
        "throughput_programs_per_s": 1.0, "throughput_tokens_per_s": (1000 + 8) / 4,
        "latency_mean_s": 1.5, "latency_p50_s": 1.5, "latency_p99_s": 2.97,
        "ttft_mean_s": 0.75, "ttft_p50_s": 0.75, "ttft_p99_s": 1.485,
        "cache_hit_rate": 0.75, "optimal_cache_hit_rate": 0.8,
        "reachable_cache_hit_rate": 0.75, "share_of_optimal_hit_rate": 0.9375,
        "prompt_tokens": 1000,
        "computed_tokens": 250, "completion_tokens": 8, "forced_tokens": 3, "forward_passes": 10,
        "mean_batch_size": 4.0, "peak_pages": 77, "overhead_fraction": 0.25, "accuracy": 0.75,
        "tree_s": 0.5, "tree_fraction": 0.125, "tree_us_per_request": 125_000.0,
        "peak_kv_bytes": 77_000, "compilations": 0,
    }  # fmt: skip
    assert metrics == pytest.approx(expected)
    assert set(expected) <= set(METRICS)


def test_waits_and_fairness_are_measured_where_they_are_known():
    outcomes = tuple(
        Outcome("", None, latency_s=2.0, ttft_s=1.0, completion_tokens=10, queued_s=q, family=f)
        for q, f in ((0.0, "a"), (1.0, "a"), (5.0, "b"), (7.0, "b"))
    )
    metrics = measure(Ran(outcomes, ()), BEFORE, AFTER, 1.0, BOUND)
    assert metrics["wait_p999_s"] == pytest.approx(6.994)
    assert metrics["wait_p50_s"] == 3.0
    assert metrics["worst_family_wait_p99_s"] == pytest.approx(6.98)
    assert metrics["fairness"] == pytest.approx(1.0)  # both families get 5 tokens a second


def test_accuracy_is_left_out_where_nothing_is_graded():
    ran = Ran((Outcome("text", None, 1.0, 1.0, 5),), ())
    assert "accuracy" not in measure(ran, BEFORE, AFTER, 1.0, BOUND)


def test_a_workloads_own_metrics_join_those_of_the_engine():
    own = Ran(OUTCOMES, (), {"accuracy": 0.125})
    assert measure(own, BEFORE, AFTER, 1.0, BOUND)["accuracy"] == 0.125


@pytest.mark.parametrize("own", [{"accurracy": 1.0}, {"accuracy": math.nan}])
def test_a_metric_that_nobody_knows_or_that_is_no_number_is_named(own):
    with pytest.raises(ConfigError, match=r"the workload measures .*did you mean 'accuracy'"):
        measure(Ran(OUTCOMES, (), own), BEFORE, AFTER, 1.0, BOUND)


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        (Metric("x"), 0.12345, "0.123"),
        (Metric("x"), 12.345, "12.3"),
        (Metric("x"), 1234.5, "1,234"),
        (Metric("x"), 0.0, "0"),
        (Metric("x", "%", 100.0), 0.8551, "85.5"),
        (Metric("x", digits=0), 85166.0, "85,166"),
    ],
)
def test_values_are_shown_with_three_digits_and_counts_in_full(metric, value, text):
    assert metric.show(value) == text
