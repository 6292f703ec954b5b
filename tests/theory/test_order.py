"""Depth-first orders against the definition: every subtree is visited in one go."""

import random

from hypothesis import given
from hypothesis import strategies as st

from sgjax.theory.order import dfs_order, is_dfs_order
from tests.theory.naive import prefixes

PATHS = st.lists(st.lists(st.integers(0, 2), max_size=4).map(tuple), max_size=7)


def visits_each_subtree_in_one_go(paths):
    for prefix in set().union(*map(prefixes, paths)):
        inside = [at for at, path in enumerate(paths) if path[: len(prefix)] == prefix]
        if inside[-1] - inside[0] + 1 != len(inside):
            return False
    return True


@given(PATHS)
def test_checker_agrees_with_the_definition(paths):
    assert is_dfs_order(paths) == visits_each_subtree_in_one_go(paths)


@given(PATHS, st.integers(0, 9))
def test_dfs_order_is_one_whatever_the_names_of_the_tokens(paths, seed):
    names = random.Random(seed).sample(range(3), 3)
    renamed = [tuple(names[token] for token in path) for path in paths]
    assert is_dfs_order([renamed[i] for i in dfs_order(paths)])


def test_coming_back_to_a_family_is_not_depth_first():
    assert is_dfs_order([(1, 2), (1, 3), (4,)])
    assert not is_dfs_order([(1, 2), (4,), (1, 3)])
