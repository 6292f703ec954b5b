import numpy as np
import pytest

from sgjax.cache import SCRATCH_PAGE, Owner, PagePool
from sgjax.errors import ConfigError, OutOfPages


def test_new_pool_is_free_but_for_the_scratch_page():
    pool = PagePool(8, 4)
    assert pool.counts() == {"total": 8, "free": 7, "tree": 0, "sequence": 0, "scratch": 1}
    assert SCRATCH_PAGE not in pool.alloc(7)
    pool.check()


def test_first_pages_come_in_ascending_order_and_come_back_in_order():
    pool = PagePool(8, 1)
    assert pool.alloc(3).tolist() == [1, 2, 3]
    pool.free(np.array([2, 3], np.int32), Owner.SEQUENCE)
    assert pool.alloc(3).tolist() == [2, 3, 4]


def test_alloc_of_too_many_pages_says_who_holds_them():
    pool = PagePool(8, 1)
    pool.transfer(pool.alloc(2), Owner.SEQUENCE, Owner.TREE)
    pool.alloc(1)
    with pytest.raises(OutOfPages, match=r"5 pages .* 4 of 8 free \(cache 2, sequences 1\)"):
        pool.alloc(5)
    assert pool.num_free == 4
    pool.check()


def test_freeing_twice_is_an_internal_error():
    pool = PagePool(8, 1)
    pages = pool.alloc(3)
    pool.free(pages[:1], Owner.SEQUENCE)
    with pytest.raises(AssertionError, match=r"not owned by SEQUENCE: \[1\], but by \['FREE'\]"):
        pool.free(pages, Owner.SEQUENCE)
    assert pool.num_free == 5
    pool.check()


def test_naming_a_page_twice_is_an_internal_error():
    pool = PagePool(8, 1)
    page = pool.alloc(1)
    with pytest.raises(AssertionError, match=r"\[1\] named more than once"):
        pool.free(np.concatenate([page, page]), Owner.SEQUENCE)
    pool.check()


def test_pages_of_another_owner_cannot_be_freed():
    pool = PagePool(8, 1)
    pages = pool.alloc(2)
    pool.transfer(pages, Owner.SEQUENCE, Owner.TREE)
    with pytest.raises(AssertionError, match="not owned by SEQUENCE"):
        pool.free(pages, Owner.SEQUENCE)
    with pytest.raises(AssertionError, match="not owned by TREE"):
        pool.free(np.array([SCRATCH_PAGE], np.int32), Owner.TREE)
    pool.free(pages, Owner.TREE)
    pool.check()


def test_free_pages_move_by_alloc_and_free_only():
    pool = PagePool(8, 1)
    with pytest.raises(AssertionError, match="alloc and free only"):
        pool.transfer(pool.alloc(1), Owner.SEQUENCE, Owner.FREE)


def test_check_finds_a_page_lost_from_the_free_list():
    pool = PagePool(8, 1)
    pool._stack[0] = pool._stack[1]
    with pytest.raises(AssertionError, match="free list"):
        pool.check()


@pytest.mark.parametrize(("num_pages", "page_size"), [(1, 1), (0, 1), (8, 0)])
def test_sizes_out_of_range_are_refused(num_pages: int, page_size: int):
    with pytest.raises(ConfigError, match="got"):
        PagePool(num_pages, page_size)
