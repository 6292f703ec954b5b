"""The hit-rate bound against brute force: sets of prefixes, and replays of every visiting order."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgjax.theory.bound import common_prefix, hit_rate_bound

token_lists = st.lists(st.integers(0, 2), min_size=1, max_size=6)
prompt_sets = st.lists(token_lists, min_size=1, max_size=8)


def prefixes(prompt):
    return {tuple(prompt[:end]) for end in range(1, len(prompt) + 1)}


def computed_serially(prompts):
    """Tokens an engine computes with an unlimited cache that matches on tokens[:-1]."""
    seen, computed = set(), 0
    for prompt in prompts:
        hit = max((len(p) for p in prefixes(prompt[:-1]) & seen), default=0)
        computed += len(prompt) - hit
        seen |= prefixes(prompt)
    return computed


@given(prompt_sets)
def test_tree_tokens_are_the_distinct_prefixes(prompts):
    bound = hit_rate_bound(prompts)
    assert bound.tree_tokens == len(set().union(*map(prefixes, prompts)))
    assert bound.prompt_tokens == sum(map(len, prompts))


@given(prompt_sets, st.randoms(use_true_random=False))
def test_bound_does_not_depend_on_the_order_of_the_prompts(prompts, rng):
    shuffled = rng.sample(prompts, len(prompts))
    assert hit_rate_bound(shuffled) == hit_rate_bound(prompts)


@given(st.lists(token_lists, min_size=1, max_size=5))
def test_reachable_rate_is_the_best_over_all_serial_orders(prompts):
    best = min(map(computed_serially, itertools.permutations(prompts)))
    bound = hit_rate_bound(prompts)
    assert bound.reachable == pytest.approx(1 - best / bound.prompt_tokens)
    assert bound.reachable <= bound.optimal


def test_paper_and_engine_bound_differ_by_one_token_a_repetition():
    bound = hit_rate_bound([[1, 2, 3, 4]] * 3)
    assert bound.optimal == pytest.approx(1 - 4 / 12)
    assert bound.reachable == pytest.approx(1 - 6 / 12)


def test_no_prompts_have_no_hits():
    assert hit_rate_bound([]).optimal == 0.0


@given(token_lists, token_lists)
def test_common_prefix_is_the_longest_shared_one(a, b):
    assert common_prefix(a, b) == max((len(p) for p in prefixes(a) & prefixes(b)), default=0)
