"""Large pages change where arrays lie in physical memory and nothing else."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

from sgjax.engine import large_pages
from sgjax.engine.large_pages import BYTES, use_large_pages


def test_arrays_keep_their_contents_and_addresses():
    values = np.arange(3 * BYTES // 4, dtype=np.float32)
    array = jnp.array(values)
    before = array.unsafe_buffer_pointer()
    use_large_pages({"a": array, "b": [jnp.ones(3)]})
    assert array.unsafe_buffer_pointer() == before
    np.testing.assert_array_equal(array, values)


def test_bytes_are_counted_in_each_page_they_lie_in():
    arrays = [jnp.zeros(n, jnp.uint8) for n in (BYTES * 5 // 2, 100)]
    filled = large_pages._filled(arrays)
    assert sum(filled.values()) == BYTES * 5 // 2 + 100
    assert max(filled.values()) == BYTES


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_are_asked_for_nothing(monkeypatch, platform):
    monkeypatch.setattr(sys, "platform", platform)
    assert use_large_pages(jnp.zeros(4 * BYTES, jnp.uint8)) == 0
