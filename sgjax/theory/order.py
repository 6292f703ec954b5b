"""Orders of visiting: depth-first, and the checker that says whether an order is one.

Imports theory.visits and the standard library. Theorem 3.1: with a cache as large as the longest
request, a depth-first order computes no edge of the prefix tree twice, and serving the longest
cached prefix first *is* a depth-first order.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from sgjax.theory.visits import common_prefix

Items = Sequence[tuple[object, ...]]


def dfs_order(paths: Items) -> list[int]:
    """Return the indices of the paths in a depth-first order of their prefix tree.

    A path that is a prefix of others comes before them (preorder). That matters to an engine,
    which computes a prompt's last token whatever the cache holds: whoever comes later hits it.
    """
    return sorted(range(len(paths)), key=lambda i: paths[i])


def is_dfs_order(paths: Items) -> bool:
    """Return whether the paths, in the order given, visit their prefix tree depth-first.

    That is: once a subtree is left, no later path enters it again. A path shares most with a
    neighbour in sorted order, so it re-enters a subtree exactly if it shares more with an earlier
    neighbour than with its predecessor.
    """
    seen: list[tuple[object, ...]] = []
    previous: tuple[object, ...] = ()
    for path in paths:
        at = bisect_left(seen, path)
        neighbours = seen[max(at - 1, 0) : at + 1]
        deepest = max((common_prefix(path, other) for other in neighbours), default=0)
        if deepest > common_prefix(path, previous):
            return False
        insort(seen, path)
        previous = path
    return True
