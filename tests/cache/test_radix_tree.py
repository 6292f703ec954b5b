import numpy as np
import pytest
from naive_cache import edges, keys

from sgjax.cache import (
    CacheEvent,
    EventKind,
    FirstInFirstOut,
    InsertReason,
    Keys,
    LeastFrequentlyUsed,
    LeastRecentlyUsed,
    Match,
    Owner,
    PagePool,
    RadixTree,
)


def make_tree(page_size: int = 1, num_pages: int = 65, order: object = None) -> RadixTree:
    return RadixTree(PagePool(num_pages, page_size), order or LeastRecentlyUsed())


def add(tree: RadixTree, key: Keys) -> Match:
    """Insert a key as a sequence would that reuses what is cached."""
    match = tree.match(key)
    own = tree._pool.alloc(len(key) // tree.page_size - len(match.pages))
    pages = np.concatenate([match.pages, own])
    return tree.insert(key, pages, match.num_tokens, InsertReason.FINISHED)


def test_match_ends_at_a_whole_page():
    tree = make_tree(page_size=4)
    pages = add(tree, keys(*range(10))).pages
    assert len(pages) == 2
    match = tree.match(keys(0, 1, 2, 3, 4, 5, 99, 7))
    assert (match.num_tokens, match.pages.tolist()) == (4, pages[:1].tolist())
    assert tree.match(keys(0, 1, 2)).node is tree.root


def test_match_inside_an_edge_splits_it_and_keeps_the_pin_on_the_lower_half():
    tree = make_tree()
    lower = add(tree, keys(1, 2, 3, 4)).node
    tree.pin(lower)
    upper = tree.match(keys(1, 2, 9)).node
    assert tree.num_evictable == 0
    assert edges(tree) == {lower.id: (upper.id, (3, 4)), upper.id: (0, (1, 2))}
    tree.unpin(lower)
    assert tree.num_evictable == 4


def test_a_split_node_is_as_recently_used_as_the_match_that_split_it():
    tree = make_tree()
    add(tree, keys(1, 2, 3, 4))
    other = add(tree, keys(7, 8))
    tree.match(keys(1, 2))
    tree.evict(4)
    assert tree.peek(keys(1, 2, 3, 4)) == 2
    assert tree.peek(keys(7, 8)) == 0
    assert other.num_tokens == 2


def test_a_split_node_keeps_the_age_of_its_tokens():
    tree = make_tree(order=FirstInFirstOut())
    add(tree, keys(1, 2, 3))
    add(tree, keys(7))
    tree.match(keys(1, 2))
    tree.evict(2)
    assert (tree.peek(keys(1, 2, 3)), tree.peek(keys(7))) == (1, 1)


def test_a_split_node_keeps_the_hits_of_its_tokens():
    tree = make_tree(order=LeastFrequentlyUsed())
    for key, hits in ((keys(1, 2, 3), 3), (keys(7), 4), (keys(1, 2), 2)):
        add(tree, key)
        for _ in range(hits):
            tree.match(key)
    tree.evict(2)
    assert (tree.peek(keys(1, 2, 3)), tree.peek(keys(7))) == (2, 0)


def test_equal_prompts_end_on_the_same_pages_and_duplicates_are_freed():
    tree = make_tree()
    first, second = tree._pool.alloc(3), tree._pool.alloc(3)
    tree.insert(keys(1, 2, 3), first, 0, InsertReason.CHUNK)
    match = tree.insert(keys(1, 2, 3), second, 0, InsertReason.CHUNK)
    assert match.pages.tolist() == first.tolist()
    assert tree._pool.counts()["sequence"] == 0
    with pytest.raises(AssertionError, match="not owned"):
        tree._pool.free(second, Owner.SEQUENCE)


def test_pages_handed_out_do_not_change_when_the_tree_does():
    tree = make_tree()
    match = add(tree, keys(1, 2, 3, 4))
    before = match.pages.copy()
    tree.match(keys(1, 2, 9))
    tree.evict(3)
    assert match.pages.tolist() == before.tolist()


def test_the_tree_keeps_its_own_copy_of_keys_and_pages():
    tree = make_tree()
    key, pages = keys(1, 2, 3), tree._pool.alloc(3)
    tree.insert(key, pages, 0, InsertReason.CHUNK)
    kept = pages.tolist()
    key[:], pages[:] = 9, 0
    assert tree.match(keys(1, 2, 3)).pages.tolist() == kept


def test_evict_skips_pinned_leaves():
    tree = make_tree()
    old = add(tree, keys(1, 2)).node
    tree.pin(old)
    add(tree, keys(3, 4))
    assert tree.evict(4) == 2
    assert tree.peek(keys(1, 2)) == 2


def test_a_pin_protects_the_whole_path_and_nothing_beside_it():
    tree = make_tree()
    add(tree, keys(1, 2, 3))
    node = add(tree, keys(1, 2, 4)).node
    tree.pin(node)
    tree.pin(node)
    assert (tree.num_pages, tree.num_evictable) == (4, 1)
    tree.unpin(node)
    assert tree.num_evictable == 1
    tree.unpin(node)
    assert tree.num_evictable == 4


def test_evict_trims_the_end_of_the_last_leaf():
    tree = make_tree(page_size=2)
    add(tree, keys(*range(8)))
    assert tree.evict(1) == 1
    assert tree.peek(keys(*range(8))) == 6
    assert tree.evict(99) == 3
    assert tree.num_pages == 0


def test_evict_goes_on_with_parents_that_became_leaves():
    tree = make_tree()
    add(tree, keys(1, 2, 3))
    add(tree, keys(1, 2, 4))
    assert tree.evict(3) == 3
    assert tree.peek(keys(1, 2, 3)) == 1


@pytest.mark.parametrize(
    ("order", "victims"),
    [
        (LeastRecentlyUsed(), [2, 3, 1]),
        (LeastFrequentlyUsed(), [3, 2, 1]),
        (FirstInFirstOut(), [1, 2, 3]),
    ],
)
def test_each_order_evicts_its_own_victims(order: object, victims: list[int]):
    tree = make_tree(order=order)
    for token in (1, 2, 3):
        add(tree, keys(token))
    for token in (2, 2, 3, 1, 1, 1):
        tree.match(keys(token))
    gone: list[int] = []
    tree.listen(lambda event: gone.append(int(event.key[0])))
    for _ in victims:
        tree.evict(1)
    assert gone == victims


def test_using_an_evicted_node_is_an_internal_error():
    tree = make_tree()
    node = add(tree, keys(1, 2)).node
    tree.evict(2)
    with pytest.raises(AssertionError, match="not in the tree"):
        tree.pin(node)


def test_unpinning_more_than_pinned_is_an_internal_error():
    tree = make_tree()
    node = add(tree, keys(1)).node
    with pytest.raises(AssertionError, match="not pinned"):
        tree.unpin(node)


def test_an_insert_that_lost_its_shared_prefix_is_an_internal_error():
    tree = make_tree()
    pages = add(tree, keys(1, 2)).pages
    tree.evict(2)
    with pytest.raises(AssertionError, match="unpinned"):
        tree.insert(keys(1, 2), pages, 2, InsertReason.CHUNK)


def test_keys_that_are_not_int64_are_an_internal_error():
    with pytest.raises(AssertionError, match="int64"):
        make_tree(page_size=2).match(np.zeros(4, np.int32))


def test_reset_keeps_what_is_pinned():
    tree = make_tree()
    node = add(tree, keys(1, 2)).node
    tree.pin(node)
    add(tree, keys(1, 2, 3))
    add(tree, keys(4))
    tree.reset()
    assert tree.num_pages == 2
    tree.unpin(node)
    assert tree.num_evictable == 2


def test_events_tell_the_whole_story():
    tree = make_tree()
    seen: list[tuple[EventKind, int, int, list[int]]] = []

    def listener(event: CacheEvent) -> None:
        seen.append((event.kind, event.node, event.parent, event.key.tolist()))

    tree.listen(listener)
    add(tree, keys(1, 2, 3))
    add(tree, keys(1, 4))
    tree.evict(1)
    tree.evict(2)
    assert seen == [
        (EventKind.INSERT, 1, 0, [1, 2, 3]),
        (EventKind.SPLIT, 2, 0, [1]),
        (EventKind.INSERT, 3, 2, [4]),
        (EventKind.TRIM, 1, 2, [2]),
        (EventKind.EVICT, 1, 2, [2]),
        (EventKind.EVICT, 3, 2, [4]),
    ]


def test_walk_stops_at_the_deepest_whole_edge_and_counts_into_the_next():
    tree = make_tree(page_size=2)
    top = add(tree, keys(1, 2, 3, 4)).node
    add(tree, keys(1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
    key = keys(1, 2, 3, 4, 5, 6, 7, 0, 0)
    assert tree.walk(key) == (top, 6, 6)
    assert tree.walk(key, start=top) == (top, 6, 6)
    assert tree.walk(keys(9, 9)) == (tree.root, 0, 0)
    assert tree.first_key(key, 4) == tree.first_key(keys(5, 6), 0)
    assert tree.first_key(key, 8) is None


def test_check_finds_a_wrong_pin_count():
    tree = make_tree()
    node = add(tree, keys(1, 2)).node
    node.pins += 1
    with pytest.raises(AssertionError):
        tree.check()


def test_whole_leaves_are_evicted_though_a_part_of_the_last_would_do():
    tree = RadixTree(PagePool(65, 1), LeastRecentlyUsed(), whole_leaves=True)
    add(tree, keys(1, 2, 3, 4))
    add(tree, keys(1, 2, 5, 6, 7))
    assert tree.evict(1) == 2
    assert tree.peek(keys(1, 2, 3, 4)) == 2
    assert tree.peek(keys(1, 2, 5, 6, 7)) == 5
    assert tree.evict(4) == 5
    assert tree.num_pages == 0
