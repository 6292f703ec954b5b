"""How K/V are stored in the pool. Imports jax and errors.

XLA's CPU backend turns a scatter of bfloat16 into a conversion of the whole pool to float32 and
back; a scatter of uint16 is in place. So 16-bit K/V are kept as uint16 there, and a uint16 pool
always means the bits of bfloat16.
"""

import jax
import jax.numpy as jnp

from sgjax.errors import ConfigError

KV_DTYPES = ("float32", "bfloat16")


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


def write(pool: jax.Array, new: jax.Array, slots: jax.Array) -> jax.Array:
    """Return the pool [N * S, K * D] with new f[T, K, D] at slots i32[T].

    Slots of real tokens are distinct; padding all goes to slot 0, whose content is arbitrary.
    """
    rows = new.reshape(new.shape[0], -1)
    if pool.dtype == jnp.uint16:
        rows = jax.lax.bitcast_convert_type(rows.astype(jnp.bfloat16), jnp.uint16)
    return pool.at[slots].set(rows.astype(pool.dtype), mode="promise_in_bounds")


def values(stored: jax.Array) -> jax.Array:
    """Return stored elements as the floats they are."""
    if stored.dtype == jnp.uint16:
        return jax.lax.bitcast_convert_type(stored, jnp.bfloat16)
    return stored
