"""Every attention backend against dense attention in numpy, on ragged batches."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.kernels import storage
from sgjax.kernels.base import Attention
from sgjax.kernels.cpu import CpuAttention
from sgjax.kernels.reference import ReferenceAttention
from sgjax.kernels.select import select_attention
from sgjax.models.llama import make_kv, stored_bytes
from sgjax.models.presets import load_preset
from tests.kernels.ragged import Extend, dense_attention, pack

D, G, BQ, P_TOKENS, HD = 3, 4, 4, 64, 8


@functools.cache
def backends(page_size: int) -> tuple[Attention, ...]:
    """Small chunks, so that tiny sequences span several."""
    return (ReferenceAttention(page_size), CpuAttention(page_size, chunk=16))


@functools.cache
def compiled(attention: Attention):
    return jax.jit(attention)


class Pools:
    """Random K/V of some sequences in random pages, and the same sequences laid out densely."""

    def __init__(self, page_size, kv_heads, head_dim, dtype, rng, platform="cpu"):
        # One size for all examples, so that each backend compiles once for each page size.
        used = (D + G) * -(-P_TOKENS // page_size) + 1
        self.dtype, self.kv_heads, self.platform = dtype, kv_heads, platform
        shape = (used * page_size, kv_heads, head_dim)
        self.k = rng.standard_normal(shape, np.float32)
        self.v = rng.standard_normal(shape, np.float32)
        self.page_size = page_size

    def stored(self, x):
        x = jnp.asarray(x.reshape(len(x), -1), self.dtype)
        width = storage.row_width(x.shape[1], self.platform)
        x = jnp.pad(x, ((0, 0), (0, width - x.shape[1])), constant_values=np.nan)
        kind = storage.pool_dtype(self.dtype, self.platform)
        return jax.lax.bitcast_convert_type(x, kind) if kind == "uint16" else x

    def dense(self, x, extend):
        index = np.arange(extend.end)
        pages = np.array(extend.pages)
        return x[pages[index // self.page_size] * self.page_size + index % self.page_size]


def check(
    extends,
    page_size,
    kv_heads,
    groups,
    dtype,
    attention,
    seed=0,
    tolerance=2e-5,
    head_dim=HD,
    platform="cpu",
):
    rng = np.random.default_rng(seed)
    H = kv_heads * groups
    packed = pack(extends, page_size, D, G, BQ, -(-P_TOKENS // page_size))
    pools = Pools(page_size, kv_heads, head_dim, dtype, rng, platform)
    T = D + G * BQ
    q = rng.standard_normal((T, H, head_dim), np.float32)
    k = rng.standard_normal((T, kv_heads, head_dim), np.float32)
    v = rng.standard_normal((T, kv_heads, head_dim), np.float32)
    out, k_pool, v_pool = compiled(attention)(
        *(jnp.asarray(x, dtype) for x in (q, k, v)),
        pools.stored(pools.k),
        pools.stored(pools.v),
        packed.layout,
    )
    real = np.zeros(T, bool)
    for at in packed.places:
        slots = packed.layout.out_slots[at]
        pools.k[slots], pools.v[slots] = k[at], v[at]
        real[at] = True
    for e, at in zip(extends, packed.places, strict=True):
        want = dense_attention(q[at], pools.dense(pools.k, e), pools.dense(pools.v, e), e.start)
        np.testing.assert_allclose(np.float32(out[at]), want, rtol=tolerance, atol=tolerance)
    assert not np.float32(out[~real]).any(), "padding must give zeros"
    for pool, x in ((k_pool, pools.k), (v_pool, pools.v)):
        got = np.float32(storage.heads(pool, *x.shape[1:]))
        np.testing.assert_allclose(got[page_size:], x[page_size:], rtol=tolerance, atol=tolerance)


@st.composite
def ragged(draw, page_size):
    """Some decodes and some extends of one or more blocks, in shuffled pages."""
    decodes = draw(st.integers(0, D))
    blocks, sizes = G, []
    while blocks and draw(st.booleans()):
        size = draw(st.integers(1, blocks * BQ))
        blocks -= -(-size // BQ)
        sizes.append(size)
    ends = [draw(st.integers(1, P_TOKENS)) for _ in range(decodes)]
    ranges = [(end - 1, end) for end in ends]
    # A one-token extend is a decode row as long as there is one to spare.
    for size in sizes:
        start = draw(st.integers(0, P_TOKENS - size))
        ranges.append((start, start + size))
    need = [-(-end // page_size) for _, end in ranges]
    pages = draw(st.permutations(range(1, sum(need) + 1)))
    cuts = np.cumsum([0, *need])
    return [
        Extend(tuple(pages[cuts[i] : cuts[i + 1]]), start, end)
        for i, (start, end) in enumerate(ranges)
    ]


@pytest.mark.parametrize("backend", [0, 1], ids=["reference", "cpu"])
@pytest.mark.parametrize("page_size", [1, 16])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_attention_equals_dense_attention_on_ragged_batches(page_size, backend, data):
    extends = data.draw(ragged(page_size))
    check(extends, page_size, 2, 3, "float32", backends(page_size)[backend])


BOUNDARIES = [
    Extend((5, 3), 15, 16),
    Extend((4, 2), 16, 17),
    Extend((1, 9, 7, 6), 63, 64),
    Extend((8,), 0, 1),
    Extend((10, 11, 12), 25, 34),
]


@pytest.mark.parametrize("groups", [1, 3, 4, 8])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_attention_serves_every_grouping_at_page_boundaries(groups, kv_heads):
    for attention in backends(16):
        check(BOUNDARIES, 16, kv_heads, groups, "float32", attention)


@pytest.mark.parametrize("page_size", [1, 16])
def test_attention_in_bfloat16_stays_within_two_percent(page_size):
    extends = BOUNDARIES
    if page_size == 1:
        extends = [Extend(tuple(range(1, 41)), 30, 40), Extend(tuple(range(41, 105)), 63, 64)]
    for attention in backends(page_size):
        check(extends, page_size, 2, 3, "bfloat16", attention, tolerance=2e-2)


def test_siblings_read_pages_that_are_written_in_the_same_step():
    shared = (3, 1)
    writer = Extend((*shared, 5), 28, 36)
    sibling = Extend((*shared, 4), 32, 37)
    decode = Extend((*shared, 2), 32, 33)
    for attention in backends(16):
        assert attention.writes_first
        check([writer, sibling, decode], 16, 2, 3, "float32", attention)


def test_an_empty_batch_gives_zeros():
    for attention in backends(16):
        check([], 16, 2, 3, "float32", attention)


def test_stale_values_behind_a_sequence_do_not_leak():
    packed = pack([Extend((1,), 2, 3)], 16, D, G, BQ, 4)
    T = D + G * BQ
    ones = jnp.ones((T, 2, HD))
    pool = jnp.full((32, 2 * HD), 1e30).at[16:18].set(1.0)
    for attention in backends(16):
        out, _, _ = compiled(attention)(jnp.ones((T, 6, HD)), ones, ones, pool, pool, packed.layout)
        np.testing.assert_allclose(out[0], 1.0, rtol=1e-6)


def test_the_cpu_pool_of_bfloat16_is_uint16():
    assert storage.pool_dtype("bfloat16", "cpu") == "uint16"
    assert storage.pool_dtype("bfloat16", "gpu") == "bfloat16"
    with pytest.raises(ConfigError, match=r"float16.*float32, bfloat16"):
        storage.pool_dtype("float16", "cpu")


@pytest.mark.parametrize(
    ("kv_heads", "platform", "devices", "row"),
    [(3, "tpu", 1, 256), (3, "tpu", 3, 384), (3, "gpu", 1, 192), (4, "tpu", 2, 256)],
)
def test_rows_are_whole_tiles_of_each_tpu_and_what_a_token_takes_is_what_pools_hold(
    kv_heads, platform, devices, row
):
    config = load_preset("smollm2-135m").config
    config = dataclasses.replace(config, num_heads=36, num_kv_heads=kv_heads)
    assert storage.row_width(config.kv_size, platform, devices) == row
    bytes_a_token = stored_bytes(config, "bfloat16", platform, devices)
    assert bytes_a_token == 2 * config.num_layers * row * 2
    if devices == 1:
        pools = jax.eval_shape(lambda: make_kv(config, 160, "bfloat16", platform))
        assert sum(x.size for x in jax.tree.leaves(pools)) * 2 == 160 * bytes_a_token


def test_the_reference_reads_nothing_of_padded_rows():
    check(
        BOUNDARIES, 16, 3, 2, "bfloat16", ReferenceAttention(16),
        tolerance=2e-2, head_dim=64, platform="tpu",
    )  # fmt: skip


def test_select_takes_a_backend_by_its_name():
    assert select_attention("cpu", "cpu", 16) == CpuAttention(16)
    assert select_attention("reference", "gpu", 4) == ReferenceAttention(4)


@pytest.mark.parametrize(
    ("name", "platform", "message"),
    [
        (
            "flash",
            "cpu",
            "'flash' is not known; allowed: auto, reference, cpu, cpu_native, pallas_gpu",
        ),
        ("cpu", "gpu", "needs platform 'cpu', got 'gpu'; use attention='auto'"),
        ("auto", "tpu", "page_size=1; use page_size 16"),
    ],
)
def test_select_refuses_what_cannot_run(name, platform, message):
    with pytest.raises(UnsupportedBackend, match=message):
        select_attention(name, platform, 1)
