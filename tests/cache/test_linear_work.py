"""The tree's work is counted, not timed: lines of sgjax/cache executed by one operation."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import numpy as np
from naive_cache import WaitingIndex, keys

from sgjax.cache import InsertReason, LeastRecentlyUsed, Match, PagePool, RadixTree


class LineCount:
    lines = 0


@contextmanager
def counted() -> Iterator[LineCount]:
    """Count the lines of sgjax/cache that are executed inside."""
    count = LineCount()

    def trace(frame: FrameType, event: str, arg: object) -> Callable[..., object] | None:
        if "sgjax/cache" not in frame.f_code.co_filename.replace("\\", "/"):
            return None
        count.lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


def add(tree: RadixTree, tokens: list[int]) -> Match:
    match = tree.match(keys(*tokens))
    own = tree._pool.alloc(len(tokens) - match.num_tokens)
    pages = np.concatenate([match.pages, own])
    return tree.insert(keys(*tokens), pages, match.num_tokens, InsertReason.FINISHED)


def bushy_tree(branches: int) -> RadixTree:
    """Return a tree of `branches` leaves below one common prefix."""
    tree = RadixTree(PagePool(4 * branches + 100, 1), LeastRecentlyUsed())
    for i in range(branches):
        add(tree, [1, 2, 3, 1000 + i, 5])
    return tree


def work(tree: RadixTree) -> list[int]:
    """Return the lines that each of some operations takes."""
    known, new = keys(1, 2, 3, 1005, 5), [1, 2, 3, 7, 7]
    found = []
    node = tree.root

    def match() -> None:
        nonlocal node
        node = tree.match(known).node

    operations: list[Callable[[], object]] = [
        match,
        lambda: tree.peek(known),
        lambda: tree.pin(node),
        lambda: tree.unpin(node),
        lambda: add(tree, new),
        lambda: tree.match(keys(1, 2)),
        lambda: tree.evict(1),
        lambda: tree.evict(2),
    ]
    for operation in operations:
        with counted() as count:
            operation()
        assert count.lines > 0
        found.append(count.lines)
    return found


def test_no_operation_costs_more_in_a_bigger_tree():
    assert work(bushy_tree(20)) == work(bushy_tree(5000))


def test_a_run_of_tokens_is_compared_and_split_in_one_go():
    costs = []
    for length in (10, 10_000):
        tree = RadixTree(PagePool(3 * length, 1), LeastRecentlyUsed())
        with counted() as count:
            add(tree, list(range(length)))
            add(tree, [*range(length // 2), *range(length)])
        costs.append(count.lines)
    assert costs[0] == costs[1]


def test_a_chain_of_single_tokens_costs_the_same_for_each_token():
    costs = []
    for length in (400, 800):
        tree = RadixTree(PagePool(3000, 1), LeastRecentlyUsed())
        for end in range(1, length + 1):
            tree.insert(
                np.arange(end),
                np.append(tree.match(np.arange(end)).pages, tree._pool.alloc(1)),
                end - 1,
                InsertReason.FINISHED,
            )
        with counted() as count:
            node = tree.match(np.arange(length)).node
            tree.pin(node)
            tree.unpin(node)
            assert tree.evict(length) == length
        costs.append(count.lines / length)
    assert costs[1] <= costs[0]


def test_pinning_a_pinned_path_again_climbs_nowhere():
    tree = RadixTree(PagePool(3000, 1), LeastRecentlyUsed())
    for end in range(1, 201):
        add(tree, list(range(end)))
    node = tree.match(np.arange(200)).node
    with counted() as first:
        tree.pin(node)
    with counted() as second:
        tree.pin(node)
    assert second.lines < 10 < 200 < first.lines


def test_the_queue_of_leaves_does_not_grow_with_touches():
    tree = bushy_tree(50)
    for i in range(5000):
        node = tree.match(keys(1, 2, 3, 1000 + i % 50, 5)).node
        tree.pin(node)
        tree.unpin(node)
    assert len(tree._queue._heap) <= 51


def test_a_waiting_index_walks_only_what_an_event_may_move():
    tree = bushy_tree(50)
    index = WaitingIndex(tree)
    for i in range(1000):
        index.add((1, 2, 3, 1000 + i % 50, 5, i))
    tree.listen(index)
    index.num_walks = 0
    add(tree, [1, 2, 3, 1007, 5, 9])
    add(tree, [8, 8])
    assert index.num_walks == 0
    add(tree, [1, 2, 3, 1007, 5, 57])
    assert index.num_walks == 1
