"""How near values are to the paper's: order, mean and single bars, on cases counted by hand."""

import pytest

from sgjax.lab.agreement import judge_agreement
from sgjax.lab.reference import Agreement, Range, Reference

REFERENCE = Reference(
    relative_to="ours",
    values={"a": {"slow": 0.2, "fast": 0.8}, "b": {"slow": Range((0.1, 0.4)), "fast": 0.35}},
)


def judged(values, **agreement):
    ours = {("a", "slow"): 0.2, ("a", "fast"): 0.8, ("b", "slow"): 0.2, ("b", "fast"): 0.35}
    found = {**ours, **values}
    verdicts = judge_agreement(
        "throughput_programs_per_s",
        REFERENCE,
        Agreement(**agreement),
        lambda workload, variant: found[workload, variant],
    )
    return [(verdict.holds, verdict.detail) for verdict in verdicts]


def test_the_papers_own_values_agree_in_everything():
    order, mean, bars = judged({})
    assert order == (True, "5 of 5 pairs")  # slow and fast on b are not told apart by the paper
    assert mean == (True, "0.325 here, 0.325 in the paper (+0%)")
    assert bars == (True, "4 of 4 (100%)")


def test_a_variant_that_comes_out_before_another_is_named():
    order, _, _ = judged({("a", "slow"): 0.9})
    assert order == (False, "4 of 5 pairs; not slow < fast on a")


def test_a_variant_that_beats_what_values_are_relative_to_is_named():
    order, _, _ = judged({("b", "fast"): 1.2})
    assert order == (False, "4 of 5 pairs; not fast < ours on b")


@pytest.mark.parametrize(("factor", "holds"), [(1.14, True), (1.16, False), (0.84, False)])
def test_the_geometric_mean_is_compared_as_a_whole(factor, holds):
    _, mean, _ = judged({("a", "slow"): 0.2 * factor**4})
    assert mean[0] is holds


def test_single_values_are_near_within_their_range_widened():
    _, _, bars = judged({("a", "slow"): 0.26, ("b", "slow"): 0.49, ("b", "fast"): 0.27})
    assert bars == (True, "3 of 4 (75%)")
    _, _, bars = judged({("a", "slow"): 0.26, ("b", "slow"): 0.51}, bars_share=0.6)
    assert bars == (False, "2 of 4 (50%)")


def test_a_missing_value_leaves_all_open():
    assert {holds for holds, _ in judged({("a", "slow"): None})} == {None}
    assert judged({("a", "slow"): None})[0][1] == "no value of slow on a"


def test_the_order_need_not_be_judged():
    assert len(judged({}, order=False)) == 2
