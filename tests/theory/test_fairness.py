"""Waits and shares against hand-made cases."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgjax.theory.fairness import by_family, jain_index, wait_spread


def test_spread_of_a_hundred_waits():
    spread = wait_spread([float(i) for i in range(1, 1002)])
    assert (spread.count, spread.p50_s, spread.max_s) == (1001, 501.0, 1001.0)
    assert spread.p99_s == pytest.approx(991.0)
    assert spread.p999_s == pytest.approx(1000.0)


def test_nobody_waits_for_nothing():
    assert wait_spread([]).count == 0
    assert math.isnan(wait_spread([]).p99_s)


def test_families_are_told_apart():
    spreads = by_family([1.0, 9.0, 3.0], ["a", "b", "a"])
    assert spreads["a"].mean_s == 2.0
    assert spreads["b"].max_s == 9.0


def test_jain_is_one_for_equals_and_one_nth_for_a_monopoly():
    assert jain_index([2.0, 2.0, 2.0]) == pytest.approx(1.0)
    assert jain_index([5.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain_index([0.0, 0.0]) == 1.0


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=8), st.floats(0.1, 10))
def test_jain_does_not_depend_on_the_unit(shares, unit):
    index = jain_index(shares)
    assert 1 / len(shares) - 1e-9 <= index <= 1 + 1e-9
    assert jain_index([unit * share for share in shares]) == pytest.approx(index)
    assert index == pytest.approx(np.mean(shares) ** 2 / np.mean(np.square(shares)))
