"""Attention kernels by themselves, for device_check.py and cascade.py."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgjax.kernels.base import Attention
from sgjax.kernels.batch import Layout, no_runs, num_runs
from sgjax.kernels.reference import ReferenceAttention
from sgjax.kernels.select import select_attention
from sgjax.kernels.storage import pool_dtype, row_width

S = 16
"""Tokens a page."""

Rows = Iterator[tuple[str, dict[str, Any]]]
"""Results by name."""


def decode_layout(D: int, context: int, shared: int) -> Layout:
    """Return D decodes at `context` tokens whose first `shared` tokens lie in the same pages."""
    pages, common = -(-context // S), shared // S
    table = 1 + np.arange(D * pages, dtype=np.int32).reshape(D, pages)
    table[:, :common] = table[0, :common]
    last = np.full(D, context - 1, np.int32)
    none = np.zeros(0, np.int32)
    # jit takes numpy's arrays where the record names jax's.
    where: dict[str, Any] = {
        "positions": last,
        "out_slots": table[np.arange(D), last // S] * S + last % S,
        "kv_lens": last + 1,
        "page_table": table,
        "block_row": none,
        "block_start": none,
        "block_len": none,
    }
    return Layout(**where, shared=no_runs(D, D))


def with_run(layout: Layout, shared: int) -> Layout:
    """Return the layout with its common pages as one run, in tiles of queries."""
    D = int(layout.kv_lens.shape[0])
    runs: Any = no_runs(D, D)
    tiles = -(-D // runs.tokens.shape[1])
    assert tiles <= num_runs(D)
    padded = np.full(tiles * runs.tokens.shape[1], D, np.int32)
    padded[:D] = np.arange(D)
    runs.tokens[:tiles] = padded.reshape(tiles, -1)
    runs.end[:tiles], runs.own_start[:] = shared, shared
    return dataclasses.replace(layout, shared=runs)


def arrays(D: int, H: int, K: int, HD: int, slots: int, dtype: str) -> list[jax.Array]:
    """Return q, k, v and the two pools of one layer, random."""
    keys = jax.random.split(jax.random.key(0), 5)
    platform = jax.default_backend()
    pool = (slots, row_width(K * HD, platform))
    shapes = [(D, H, HD), (D, K, HD), (D, K, HD), pool, pool]
    made = [jax.random.normal(key, s, dtype) for key, s in zip(keys, shapes, strict=True)]
    stored = pool_dtype(dtype, platform)
    if stored == "uint16":
        made[3:] = [jax.lax.bitcast_convert_type(x, jnp.uint16) for x in made[3:]]
    return made


def seconds(f: Callable[[], Any], repeats: int = 20) -> float:
    """Return the median time of a call, after one to compile."""
    jax.block_until_ready(f())  # type: ignore[no-untyped-call]
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(f())  # type: ignore[no-untyped-call]
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def attend(attention: Attention, x: list[jax.Array], layout: Layout) -> Callable[[], jax.Array]:
    """Return a call of attention alone, on a pool of its own that is updated in place."""
    placed = jax.device_put(layout)
    jitted = jax.jit(attention, donate_argnums=(3, 4))
    pools = [jnp.copy(pool) for pool in x[3:]]

    def call() -> jax.Array:
        out: jax.Array
        out, *pools[:] = jitted(*x[:3], *pools, placed)
        return out

    return call


def parity(attention: str) -> Rows:
    """Yield the largest difference from the reference, plain and cascaded, by dtype."""
    chosen = _select(attention)
    plain = decode_layout(8, 200, 64)
    for dtype in ("float32", "bfloat16"):
        x = arrays(8, 32, 8, 128, 8 * 13 * S + S, dtype)
        want = jnp.float32(attend(ReferenceAttention(S), x, plain)())
        for name, layout in (("plain", plain), ("cascade", with_run(plain, 64))):
            got = jnp.float32(attend(chosen, x, layout)())
            row = {"attention": chosen.name, "dtype": dtype, "runs": name}
            yield "parity", row | {"largest": float(jnp.abs(got - want).max())}


def decode(attention: str, batch: int, context: int, bandwidth: float) -> Rows:
    """Yield time and share of the bandwidth of decode attention, Llama-2-7B's heads."""
    K, HD = 32, 128
    layout = decode_layout(batch, context, 0)
    x = arrays(batch, K, K, HD, (batch * -(-context // S) + 1) * S, "bfloat16")
    took = seconds(attend(_select(attention), x, layout))
    read = 2 * batch * context * K * HD * 2
    row = {"batch": batch, "context": context, "s": took, "mbu": read / took / bandwidth}
    yield "decode", row


def cascade(attention: str, batch: int, shared: int) -> Rows:
    """Yield how many times faster a shared prefix is attended as one run."""
    layout = decode_layout(batch, shared + 64, shared)
    x = arrays(batch, 32, 32, 128, (batch * -(-(shared + 64) // S) + 1) * S, "bfloat16")
    plain = seconds(attend(_select(attention), x, layout))
    once = seconds(attend(_select(attention), x, with_run(layout, shared)))
    row = {"batch": batch, "shared": shared, "plain_s": plain, "cascade_s": once}
    yield "cascade", row | {"gain": plain / once}


def _select(name: str) -> Attention:
    return select_attention(name, jax.default_backend(), S)
