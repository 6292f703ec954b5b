"""The hit-rate bound against brute force: sets of prefixes, and replays of every visiting order."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgjax.theory.bound import hit_rate_bound
from sgjax.theory.visits import Visit, common_prefix, paths
from tests.theory.naive import TOKENS, computed_serially, prefixes, unlimited_best, visits

prompt_sets = st.lists(TOKENS, min_size=1, max_size=8)


@given(prompt_sets)
def test_tree_tokens_are_the_distinct_prefixes(prompts):
    bound = hit_rate_bound(prompts)
    assert bound.tree_tokens == len(set().union(*map(prefixes, prompts)))
    assert bound.prompt_tokens == sum(map(len, prompts))


@given(st.lists(visits, max_size=6))
def test_tree_tokens_leave_out_what_somebody_generates(given_visits):
    prompts = set().union(*(prefixes(v.prompt) for v in given_visits))
    made = set().union(*(prefixes((v.prompt + v.output)[:-1]) - prefixes(v.prompt)
                         for v in given_visits if v.output))  # fmt: skip
    bound = hit_rate_bound([v.prompt for v in given_visits], [v.output for v in given_visits])
    assert bound.tree_tokens == len(prompts - made)


@given(prompt_sets, st.randoms(use_true_random=False))
def test_bound_does_not_depend_on_the_order_of_the_prompts(prompts, rng):
    shuffled = rng.sample(prompts, len(prompts))
    assert hit_rate_bound(shuffled) == hit_rate_bound(prompts)


@given(st.lists(visits, min_size=1, max_size=5), st.integers(1, 3))
def test_least_computed_is_the_best_over_all_serial_orders(given_visits, page_size):
    best = min(
        computed_serially(order, page_size) for order in itertools.permutations(given_visits)
    )
    prompts, outputs = [v.prompt for v in given_visits], [v.output for v in given_visits]
    bound = hit_rate_bound(prompts, outputs, page_size)
    assert bound.least_computed == best
    assert bound.reachable == pytest.approx(1 - best / bound.prompt_tokens)


@given(st.lists(visits, min_size=1, max_size=12), st.integers(1, 3))
def test_serving_by_length_of_prompt_attains_the_bound(given_visits, page_size):
    prompts, outputs = [v.prompt for v in given_visits], [v.output for v in given_visits]
    bound = hit_rate_bound(prompts, outputs, page_size)
    assert bound.least_computed == unlimited_best(given_visits, page_size)


def test_paper_and_engine_bound_differ_by_one_token_a_repetition():
    bound = hit_rate_bound([[1, 2, 3, 4]] * 3)
    assert bound.optimal == pytest.approx(1 - 4 / 12)
    assert bound.reachable == pytest.approx(1 - 6 / 12)


def test_a_second_turn_reuses_the_first_ones_answer():
    bound = hit_rate_bound([[1, 2], [1, 2, 7, 8, 3]], [[7, 8], [9]])
    assert bound.tree_tokens == 4  # 1 2, then 8 3: the last generated token has no K/V yet
    assert bound.least_computed == 4


def test_no_prompts_have_no_hits():
    assert hit_rate_bound([]).optimal == 0.0


@given(TOKENS, TOKENS)
def test_common_prefix_is_the_longest_shared_one(a, b):
    assert common_prefix(a, b) == max((len(p) for p in prefixes(a) & prefixes(b)), default=0)


def test_a_path_is_the_full_pages_of_all_that_is_computed():
    (path,) = paths([Visit((1, 2, 3, 4), (5, 6, 7))], page_size=2)
    assert path.pages == ((1, 2), (3, 4), (5, 6))
    assert (path.matchable, path.held, path.prompt_tokens) == (1, 3, 4)
