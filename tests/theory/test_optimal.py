"""The exact solver, Belady's rule and the tree's bound: each vouches for the others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgjax.errors import PromptTooLong
from sgjax.theory.belady import belady_computed
from sgjax.theory.bound import hit_rate_bound
from sgjax.theory.exact import least_computed
from sgjax.theory.visits import Visit, paths
from tests.theory.naive import visits

INSTANCES = st.tuples(st.lists(visits, max_size=5), st.integers(1, 2), st.integers(0, 6))


def sizes(instance):
    requests, page_size, spare = instance
    longest = max((path.held for path in paths(requests, page_size)), default=1)
    return requests, page_size, longest + spare


def bound(requests, page_size):
    prompts, outputs = [v.prompt for v in requests], [v.output for v in requests]
    return hit_rate_bound(prompts, outputs, page_size).least_computed


@given(INSTANCES)
@settings(max_examples=200, deadline=None)
def test_belady_is_the_best_eviction_for_a_given_order(instance):
    requests, page_size, num_pages = sizes(instance)
    best = least_computed(requests, page_size, num_pages, in_order=True)
    assert belady_computed(requests, page_size, num_pages) == best


@given(INSTANCES)
@settings(max_examples=100, deadline=None)
def test_optimum_lies_between_the_trees_bound_and_the_given_order(instance):
    requests, page_size, num_pages = sizes(instance)
    best = least_computed(requests, page_size, num_pages)
    assert bound(requests, page_size) <= best
    assert best <= least_computed(requests, page_size, num_pages, in_order=True)


@given(st.lists(visits, max_size=5), st.integers(1, 2))
@settings(max_examples=50, deadline=None)
def test_unlimited_cache_attains_the_trees_bound(requests, page_size):
    assert least_computed(requests, page_size, num_pages=99) == bound(requests, page_size)


@given(st.lists(visits, min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_more_pages_never_hurt(requests):
    longest = max(path.held for path in paths(requests))
    costs = [least_computed(requests, 1, longest + spare) for spare in range(5)]
    assert costs == sorted(costs, reverse=True)


def test_small_cache_makes_the_order_matter():
    a, b = (0, 0, 0, 0), (1, 1, 1, 1)
    alternating = [Visit((*stem, last)) for last in (2, 3) for stem in (a, b)]
    assert least_computed(alternating, 1, num_pages=5, in_order=True) == 20  # nothing survives
    assert least_computed(alternating, 1, num_pages=5) == 12  # family by family
    assert belady_computed(alternating, 1, num_pages=7) == 16  # two pages, twice


@pytest.mark.parametrize("solver", [least_computed, belady_computed])
def test_request_larger_than_the_pool_is_refused(solver):
    with pytest.raises(PromptTooLong, match="holds 3 pages"):
        solver([Visit((1, 2, 3))], 1, 2)
