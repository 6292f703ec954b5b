"""The C++ backend against dense attention: every instruction set that this machine has."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgjax.engine.engine import Engine
from sgjax.engine.runs import Member, plan_runs
from sgjax.errors import UnsupportedBackend
from sgjax.kernels import native
from sgjax.kernels.cpu_native import CpuNativeAttention, cpu_native_attention
from sgjax.kernels.select import select_attention
from tests.engine.test_runs import Node
from tests.kernels.ragged import dense_attention, pack
from tests.kernels.test_attention import BOUNDARIES, Extend, check, ragged

pytestmark = pytest.mark.skipif(
    native.find_compiler() is None, reason="no C++ compiler: cpu_native cannot be built here"
)


def backends(page_size):
    best = cpu_native_attention(page_size)
    here = native.ISAS[: native.ISAS.index(best.isa) + 1]
    return [dataclasses.replace(best, isa=isa) for isa in here]


@pytest.mark.parametrize("page_size", [1, 16])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_cpu_native_equals_dense_attention_on_ragged_batches(page_size, data):
    extends = data.draw(ragged(page_size))
    for attention in backends(page_size):
        check(extends, page_size, 2, 3, "float32", attention, tolerance=1e-5)


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128])
@pytest.mark.parametrize("groups", [1, 3, 4, 8])
def test_cpu_native_serves_every_head_dim_and_grouping(groups, head_dim):
    for attention in backends(16):
        check(BOUNDARIES, 16, 2, groups, "float32", attention, tolerance=1e-5, head_dim=head_dim)


@pytest.mark.parametrize("head_dim", [20, 64])
@pytest.mark.parametrize("page_size", [1, 16])
def test_cpu_native_in_bfloat16_stays_within_two_percent(page_size, head_dim):
    extends = BOUNDARIES
    if page_size == 1:
        extends = [Extend(tuple(range(1, 41)), 30, 40), Extend(tuple(range(41, 105)), 63, 64)]
    for attention in backends(page_size):
        check(extends, page_size, 2, 3, "bfloat16", attention, tolerance=2e-2, head_dim=head_dim)


@pytest.mark.parametrize("head_dim", [64, 96, 128])
@pytest.mark.parametrize("groups", [1, 4, 8])
def test_products_of_pairs_serve_every_grouping_and_head_dim(groups, head_dim):
    best = cpu_native_attention(16)
    check(BOUNDARIES, 16, 2, groups, "bfloat16", best, tolerance=2e-2, head_dim=head_dim)


@pytest.mark.parametrize("steep", [False, True])
@pytest.mark.parametrize("shared", [0, 192])
@pytest.mark.parametrize("decodes", [2, 3, 8, 13])
def test_long_contexts_in_bfloat16_equal_dense_attention(decodes, shared, steep):
    """Decodes and blocks over several tiles of tokens, the first ones attended once for all.

    Steep scores grow from token to token: weights of earlier ones vanish again and again.
    """
    S, D, G, BQ, K, H, HD = 16, decodes, 2, 16, 2, 6, 64
    first = tuple(range(1, 13))
    lengths = [200, 331, 256, 193, 207, 240, 300, 321, 194, 195, 222, 333, 352][:D]
    ranges = [*((n - 1, n) for n in lengths), (200, 231)]
    extends = [Extend((*first, *range(13 + 10 * i, 23 + 10 * i)), *r) for i, r in enumerate(ranges)]
    packed = pack(extends, S, D, G, BQ, 22)
    layout, T = packed.layout, D + G * BQ
    if shared:
        top = Node(1, shared, first)
        members = [Member(row, row, 1, (top,)) for row in range(D)] + [Member(D, D, 31, (top,))]
        layout = dataclasses.replace(layout, shared=plan_runs(members, T, D + G, 64))
        assert layout.shared.own_start[: D + 1].tolist() == [shared] * (D + 1)
    rng = np.random.default_rng(0)
    pools = [rng.standard_normal((160 * S, K * HD)) for _ in "kv"]
    if steep:
        pools[0] *= np.tile(np.geomspace(0.1, 10, 10 * S), 16)[:, None]
    pools = [pool.astype(jnp.bfloat16) for pool in pools]
    q, k, v = (3 * rng.standard_normal((T, h, HD)).astype(jnp.bfloat16) for h in (H, K, K))
    got, *after = jax.jit(cpu_native_attention(S))(
        q, k, v, *(x.view(np.uint16) for x in pools), layout
    )
    for e, at in zip(extends, packed.places, strict=True):
        index = np.arange(e.end)
        slots = np.array(e.pages)[index // S] * S + index % S
        keys, values = (
            np.asarray(x).view(jnp.bfloat16)[slots].reshape(-1, K, HD).astype(np.float32)
            for x in after
        )
        want = dense_attention(np.float32(q[at]), keys, values, e.start)
        np.testing.assert_allclose(np.float32(got[at]), want, rtol=2e-2, atol=2e-2)


def test_cpu_native_gives_zeros_for_an_empty_batch():
    check([], 16, 2, 3, "float32", cpu_native_attention(16))


def test_without_a_compiler_cpu_native_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedBackend, match=r"needs a C\+\+ compiler.*use attention='cpu'"):
        native.build(tmp_path)


def test_a_compiler_that_fails_is_quoted(monkeypatch, tmp_path):
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho no such flag >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(UnsupportedBackend, match="no such flag"):
        native.build(tmp_path / "cache")


def test_cpu_native_is_chosen_by_name_only_on_a_cpu():
    assert isinstance(select_attention("cpu_native", "cpu", 4), CpuNativeAttention)
    with pytest.raises(UnsupportedBackend, match="'cpu_native' needs platform 'cpu', got 'tpu'"):
        select_attention("cpu_native", "tpu", 4)


def test_auto_takes_cpu_native_where_a_compiler_is(monkeypatch, tmp_path):
    assert select_attention("auto", "cpu", 4).name == "cpu_native"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert select_attention("auto", "cpu", 4).name == "cpu"


def test_an_engine_on_cpu_native_says_so_and_gives_the_same_tokens():
    outputs = []
    for attention in ("cpu", "cpu_native"):
        with Engine("random:tiny", dtype="float32", attention=attention, page_size=4) as engine:
            prompts = ["one two three four", "one two three five", "other"]
            results = engine.generate(prompts, {"max_new_tokens": 12, "temperature": 0})
            outputs.append([r["output_ids"] for r in results])
            assert engine.get_server_info()["attention"] == attention
    assert outputs[0] == outputs[1]
