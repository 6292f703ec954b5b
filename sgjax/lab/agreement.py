"""How near a run comes to the paper's values: orderings, their geometric mean, single bars.

Imports the lab's references, metrics and verdicts.
"""

import math
from collections.abc import Callable, Iterator
from itertools import permutations

from sgjax.lab.expect import Verdict
from sgjax.lab.metrics import METRICS
from sgjax.lab.reference import Agreement, Reference

OVERALL = "all workloads together"
"""Where verdicts stand that are on no single workload."""

Ours = Callable[[str, str], float | None]
"""Give what a run found for a workload and variant, in the reference's terms."""


def judge_agreement(
    metric: str, reference: Reference, agreement: Agreement, ours: Ours
) -> tuple[Verdict, ...]:
    """Judge a run against the paper's values of one metric.

    Args:
        metric: its name.
        reference: the paper's values.
        agreement: how near is near enough.
        ours: the run's values.

    Returns:
        A verdict each on order, mean and single values; undecided where a value is missing.
    """
    label = METRICS[metric].label
    order = f"{label}: variants in the paper's order"
    mean = f"{label}: geometric mean within {agreement.mean_within:.0%} of the paper's"
    bars = (
        f"{label}: {agreement.bars_share:.0%} of the values within {agreement.bars_within:.0%} "
        "of the paper's"
    )
    sources = [*([order] if agreement.order else []), mean, bars]
    found = {
        (workload, variant): ours(workload, variant)
        for workload, values in reference.values.items()
        for variant in values
    }
    values = {key: value for key, value in found.items() if value is not None}
    if len(values) < len(found) or not values:
        missing = ", ".join(f"{v} on {w}" for (w, v), value in found.items() if value is None)
        detail = f"no value of {missing}" if missing else "the paper gives no values"
        return tuple(Verdict(source, None, detail) for source in sources)
    verdicts = {
        order: _order(reference, values),
        mean: _mean(reference, agreement, values),
        bars: _bars(reference, agreement, values),
    }
    return tuple(Verdict(source, *verdicts[source]) for source in sources)


Values = dict[tuple[str, str], float]
Finding = tuple[bool, str]


def _order(reference: Reference, values: Values) -> Finding:
    pairs = list(_ordered_pairs(reference))
    known = values | {
        (workload, reference.relative_to): 1.0
        for workload in reference.values
        if reference.relative_to is not None
    }
    wrong = [(w, a, b) for w, a, b in pairs if not known[w, a] < known[w, b]]
    detail = f"{len(pairs) - len(wrong)} of {len(pairs)} pairs"
    if wrong:
        detail += "; not " + ", ".join(f"{a} < {b} on {w}" for w, a, b in wrong)
    return not wrong, detail


def _ordered_pairs(reference: Reference) -> Iterator[tuple[str, str, str]]:
    """Yield (workload, lower, higher) for all variants whose values surely differ in the paper."""
    for workload, values in reference.values.items():
        own = [] if reference.relative_to is None else [reference.relative_to]
        for lower, higher in permutations(dict.fromkeys([*own, *values]), 2):
            low, high = reference.span(workload, lower), reference.span(workload, higher)
            assert low is not None
            assert high is not None
            if low[1] < high[0]:
                yield workload, lower, higher


def _mean(reference: Reference, agreement: Agreement, values: Values) -> Finding:
    papers = [reference.middle(*key) for key in values]
    paper = _geometric_mean([value for value in papers if value is not None])
    ours = _geometric_mean(list(values.values()))
    holds = abs(ours / paper - 1) <= agreement.mean_within
    return holds, f"{ours:.3g} here, {paper:.3g} in the paper ({ours / paper - 1:+.0%})"


def _bars(reference: Reference, agreement: Agreement, values: Values) -> Finding:
    near = 0
    for key, value in values.items():
        span = reference.span(*key)
        assert span is not None
        low, high = span[0] * (1 - agreement.bars_within), span[1] * (1 + agreement.bars_within)
        near += low <= value <= high
    share = near / len(values)
    return share >= agreement.bars_share, f"{near} of {len(values)} ({share:.0%})"


def _geometric_mean(values: list[float]) -> float:
    if min(values) <= 0:
        return 0.0
    return math.exp(sum(map(math.log, values)) / len(values))
