"""How K/V are stored in the pool. Imports jax and errors.

XLA's CPU backend turns a scatter of bfloat16 into a conversion of the whole pool to float32 and
back; a scatter of uint16 is in place. So 16-bit K/V are kept as uint16 there, and a uint16 pool
always means the bits of bfloat16.

A TPU tiles rows by 128 elements. XLA would rather keep a pool of other rows transposed, which no
page can be copied out of, and turns it over for every scatter: a copy of the pool. So rows are
padded to whole tiles there, by zeros that nothing reads.
"""

import jax
import jax.numpy as jnp

from sgjax.errors import ConfigError

KV_DTYPES = ("float32", "bfloat16")
TPU_LANES = 128
"""Elements of a tile's row."""


def pool_dtype(dtype: str, platform: str) -> str:
    """Return the dtype of the pool's arrays.

    Args:
        dtype: "float32" or "bfloat16".
        platform: "cpu", "gpu" or "tpu".

    Raises:
        ConfigError: another dtype.
    """
    if dtype not in KV_DTYPES:
        raise ConfigError(f"kv_dtype={dtype!r} is not supported; allowed: {', '.join(KV_DTYPES)}")
    return "uint16" if dtype == "bfloat16" and platform == "cpu" else dtype


def row_width(kv_size: int, platform: str, devices: int = 1) -> int:
    """Return the elements of a row of the pool.

    Args:
        kv_size: K * D, of all devices.
        platform: "cpu", "gpu" or "tpu".
        devices: that heads are split over; each has its own share of a row.
    """
    grain = TPU_LANES if platform == "tpu" else 1
    return -(-kv_size // (devices * grain)) * devices * grain


def write(pool: jax.Array, new: jax.Array, slots: jax.Array) -> jax.Array:
    """Return the pool [N * S, width] with new f[T, K, D] at slots i32[T].

    Slots of real tokens are distinct; padding all goes to slot 0, whose content is arbitrary.
    """
    rows = new.reshape(new.shape[0], -1)
    if pool.dtype == jnp.uint16:
        rows = jax.lax.bitcast_convert_type(rows.astype(jnp.bfloat16), jnp.uint16)
    rows = jnp.pad(rows, ((0, 0), (0, pool.shape[1] - rows.shape[1])))
    return pool.at[slots].set(rows.astype(pool.dtype), mode="promise_in_bounds")


def heads(rows: jax.Array, num_heads: int, head_dim: int) -> jax.Array:
    """Return rows [..., width] of a pool as the keys or values f[..., K, D] they hold."""
    used = values(rows[..., : num_heads * head_dim])
    return used.reshape(*rows.shape[:-1], num_heads, head_dim)


def values(stored: jax.Array) -> jax.Array:
    """Return stored elements as the floats they are."""
    if stored.dtype == jnp.uint16:
        return jax.lax.bitcast_convert_type(stored, jnp.bfloat16)
    return stored
