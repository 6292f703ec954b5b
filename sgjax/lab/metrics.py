"""The metrics of an experiment: what they are called, how they are shown and computed.

Imports numpy, theory, typed and the workload records. Names are those of the public contract.
Counters are read from the engine before and after a run; a metric is their difference, so that what
ran before does not count.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgjax.errors import ConfigError
from sgjax.lab.workloads.base import Outcome, Ran
from sgjax.theory.bound import HitRateBound
from sgjax.theory.fairness import by_family, jain_index, wait_spread
from sgjax.typed import nearest


@dataclass(frozen=True)
class Metric:
    """How a metric is labelled and printed.

    Attributes:
        label: a few words for axes and table headings.
        unit: of the printed number; empty for counts.
        scale: printed number = value * scale.
        digits: significant digits; 0 prints a whole number with thousands separators.
        lower_is_better: whether a Pareto front looks for small values.
    """

    label: str
    unit: str = ""
    scale: float = 1.0
    digits: int = 3
    lower_is_better: bool = False

    def show(self, value: float) -> str:
        """Return the value as text, without its unit."""
        scaled = value * self.scale
        if self.digits == 0 or scaled == 0:
            return f"{scaled:,.0f}"
        decimals = self.digits - len(str(int(abs(scaled)))) if abs(scaled) >= 1 else self.digits
        shown = f"{scaled:,.{max(decimals, 0)}f}"
        return shown if shown.strip("-0.") else "0"

    @property
    def heading(self) -> str:
        """Return the label with the unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


def _rate(label: str) -> Metric:
    return Metric(label, "%", scale=100.0)


def _seconds(label: str) -> Metric:
    return Metric(label, "s", lower_is_better=True)


def _count(label: str) -> Metric:
    return Metric(label, digits=0, lower_is_better=True)


def _milliseconds(label: str) -> Metric:
    return Metric(label, "ms", scale=1e3, lower_is_better=True)


def _microseconds(label: str) -> Metric:
    return Metric(label, "µs", scale=1e6, lower_is_better=True)


def _nats(label: str) -> Metric:
    return Metric(label, "nats", lower_is_better=True)


METRICS: dict[str, Metric] = {
    "throughput_programs_per_s": Metric("throughput", "programs/s"),
    "throughput_tokens_per_s": Metric("throughput", "tokens/s"),
    "latency_mean_s": _seconds("mean latency"),
    "latency_p50_s": _seconds("median latency"),
    "latency_p99_s": _seconds("99th percentile latency"),
    "ttft_mean_s": _seconds("mean time to first token"),
    "ttft_p50_s": _seconds("median time to first token"),
    "ttft_p99_s": _seconds("99th percentile time to first token"),
    "wait_p50_s": _seconds("median wait"),
    "wait_p99_s": _seconds("99th percentile wait"),
    "wait_p999_s": _seconds("99.9th percentile wait"),
    "worst_family_wait_p99_s": _seconds("99th percentile wait of the worst family"),
    "fairness": Metric("Jain index of the families' tokens a second"),
    "cache_hit_rate": _rate("cache hit rate"),
    "optimal_cache_hit_rate": _rate("hit rate bound"),
    "reachable_cache_hit_rate": _rate("reachable hit rate"),
    "share_of_optimal_hit_rate": _rate("share of the optimal hit rate"),
    "belady_cache_hit_rate": _rate("best eviction's hit rate"),
    "prompt_tokens": _count("prompt tokens"),
    "computed_tokens": _count("computed tokens"),
    "completion_tokens": _count("completion tokens"),
    "forced_tokens": _count("forced tokens"),
    "forward_passes": _count("forward passes"),
    "mean_batch_size": Metric("mean batch size"),
    "peak_pages": _count("peak pages"),
    "peak_kv_bytes": Metric("peak K/V", "MB", scale=1e-6, lower_is_better=True),
    "overhead_fraction": _rate("host overhead"),
    "tree_s": Metric("time in the prefix cache", "s", lower_is_better=True),
    "tree_us_per_request": Metric("prefix cache a request", "µs", lower_is_better=True),
    "tree_fraction": _rate("share of the prefix cache in the time"),
    "host_us_per_request": Metric("host time a request", "µs CPU", lower_is_better=True),
    "peak_host_bytes": Metric("memory taken at most", "MB", scale=1e-6, lower_is_better=True),
    "lines_ours": _count("lines of code, the language"),
    "lines_plain": _count("lines of code, plain client"),
    "lines_ratio": Metric("lines of the plain client over the language's"),
    "accuracy": _rate("accuracy"),
    "jumps": Metric("jumps", digits=0),
    "split_jumps": _count("jumps that end inside a token"),
    "rolled_back_tokens": _count("rolled back tokens"),
    "guessed_tokens": Metric("tokens guessed", digits=0),
    "wrong_guesses": _count("tokens guessed wrongly"),
    "saved_passes": Metric("passes of a row saved", digits=0),
    "valid_outputs": _rate("outputs that keep to the constraint"),
    "constraints_compiled": _count("constraints compiled"),
    "installed": Metric("installed (1) or not (0)", digits=0),
    "compiled_schemas": _rate("schemas compiled"),
    "over_budget_schemas": _count("schemas given up for time"),
    "passing_schemas": _rate("schemas with every instance judged right"),
    "false_accepts": _count("invalid instances accepted"),
    "false_rejects": _count("valid instances rejected"),
    "finished_outputs": _rate("outputs that came to their end"),
    "compile_p50_s": _milliseconds("median time to compile"),
    "compile_p99_s": _milliseconds("99th percentile time to compile"),
    "compile_max_s": _milliseconds("longest time to compile"),
    "mask_p50_s": _microseconds("median time of a mask"),
    "mask_p99_s": _microseconds("99th percentile time of a mask"),
    "answers_per_s": Metric("constrained answers", "1/s"),
    "answer_probability": _rate("probability of the right answer"),
    "kl_nats": _nats("KL to the model's own distribution"),
    "kl_max_nats": _nats("the largest such KL"),
    "kl_deterministic_nats": _nats("KL, one text"),
    "kl_equal_length_nats": _nats("KL, equal lengths"),
    "kl_different_length_nats": _nats("KL, different lengths"),
    "kl_nested_nats": _nats("KL, nested"),
    "kl_of_jump_nats": _nats("KL of sampling every token to jumping"),
    "lost_probability": _rate("probability not followed"),
    "compile_s": _seconds("host time to compile constraints"),
    "compilations": _count("compilations while timed"),
    "follow_rate": _rate("fields that earlier requests had written"),
    "prompt_reduction": Metric("prompt tokens saved", "times fewer"),
    "followed_prompt_reduction": Metric("saved where the form is followed", "times fewer"),
    "reused_tokens": Metric("speculated tokens that were used", digits=0),
    "wasted_tokens": _count("speculated tokens that were not"),
}
"""Every metric that a run may write; a run leaves out what its workload or executor has not."""


def measure(
    ran: Ran,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    elapsed_s: float,
    bound: HitRateBound,
) -> dict[str, float]:
    """Compute the metrics of one timed run.

    Args:
        ran: its programs, and what else the workload measured.
        before: the engine's server info when the run began.
        after: the same when it ended.
        elapsed_s: seconds from the first submission to the last end.
        bound: the hit-rate bound of the prompts that were sent.

    Returns:
        Values by metric name. `throughput_tokens_per_s` counts prompt tokens, cached or not, and
        completion tokens; `reachable_cache_hit_rate` is below the bound where prompts are equal,
        because the last token of each is computed; `mean_batch_size` is in rows a forward pass;
        `peak_pages` is the most since the engine was built, `peak_kv_bytes` what they hold;
        `overhead_fraction` is the share of planning and committing in the engine's time; `tree_s`
        is processor time of this machine, also where the run is simulated. A run that asks the
        engine nothing has the workload's own metrics alone.

    Raises:
        ConfigError: the workload measures what `METRICS` does not name, or no finite number.
    """
    for name, value in ran.metrics.items():
        if name not in METRICS or not math.isfinite(value):
            raise ConfigError(
                f"the workload measures {name}={value}, which is not allowed; a finite number is "
                f"needed, and one of METRICS in sgjax/lab/metrics.py: {nearest(name, [*METRICS])}"
            )
    outcomes, count = ran.outcomes, _difference(before, after)
    if not count["forward_passes"]:
        return {"compilations": count["compilations"], **ran.metrics}
    completion = sum(o.completion_tokens for o in outcomes)
    prompt = count["prompt_tokens"]
    host, device = count["plan_s"] + count["commit_s"], count["device_s"]
    metrics = {
        "throughput_programs_per_s": len(outcomes) / elapsed_s,
        "throughput_tokens_per_s": (prompt + completion) / elapsed_s,
        **_spread("latency", [o.latency_s for o in outcomes]),
        **_spread("ttft", [o.ttft_s for o in outcomes]),
        "cache_hit_rate": count["cached_tokens"] / prompt,
        "optimal_cache_hit_rate": bound.optimal,
        "reachable_cache_hit_rate": bound.reachable,
        "prompt_tokens": prompt,
        "computed_tokens": count["computed_tokens"],
        "completion_tokens": completion,
        "forced_tokens": count["forced_tokens"],
        "forward_passes": count["forward_passes"],
        "mean_batch_size": count["rows"] / count["forward_passes"],
        "peak_pages": after["peak_pages"],
        "peak_kv_bytes": after["peak_pages"] * after["page_bytes"],
        "overhead_fraction": host / (host + device) if host + device else 0.0,
        "tree_s": count["cache_s"],
        "tree_us_per_request": 1e6 * count["cache_s"] / len(outcomes),
        "tree_fraction": count["cache_s"] / elapsed_s,
        "compilations": count["compilations"],
    }
    if bound.optimal > 0:
        metrics["share_of_optimal_hit_rate"] = metrics["cache_hit_rate"] / bound.optimal
    metrics |= _waits(outcomes)
    graded = [o.correct for o in outcomes if o.correct is not None]
    if graded:
        metrics["accuracy"] = sum(graded) / len(graded)
    return {**metrics, **ran.metrics}


def _waits(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return how long requests waited, and how evenly families were served, where it is known."""
    waits = [o.queued_s for o in outcomes if o.queued_s is not None]
    if len(waits) < len(outcomes):
        return {}
    spread = wait_spread(waits)
    families = [o.family for o in outcomes]
    tokens: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for outcome in outcomes:
        tokens[outcome.family] += outcome.completion_tokens
        seconds[outcome.family] += outcome.latency_s
    return {
        "wait_p50_s": spread.p50_s,
        "wait_p99_s": spread.p99_s,
        "wait_p999_s": spread.p999_s,
        "worst_family_wait_p99_s": max(s.p99_s for s in by_family(waits, families).values()),
        "fairness": jain_index([tokens[name] / seconds[name] for name in tokens]),
    }


COUNTERS = (
    "prompt_tokens",
    "cached_tokens",
    "computed_tokens",
    "forced_tokens",
    "forward_passes",
    "rows",
    "compilations",
    "plan_s",
    "device_s",
    "commit_s",
    "cache_s",
)


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float]:
    return {name: after[name] - before[name] for name in COUNTERS}


def _spread(name: str, seconds: Sequence[float]) -> dict[str, float]:
    values = np.asarray(seconds)
    return {
        f"{name}_mean_s": float(values.mean()),
        f"{name}_p50_s": float(np.percentile(values, 50)),
        f"{name}_p99_s": float(np.percentile(values, 99)),
    }
