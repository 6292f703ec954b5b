"""The Llama family's forward pass: pure functions over a weight pytree.

DEVICE. Imports jax, kernels, models.config and models.layer. Llama, Mistral, Mixtral and Qwen2
differ only in their configs. Owns the creation of the K/V pool. Shape letters as in kernels.batch.
"""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sgjax.kernels.base import Attention
from sgjax.kernels.batch import Batch, KVCache
from sgjax.kernels.storage import pool_dtype, row_width
from sgjax.models.config import LinearScaling, Llama3Scaling, ModelConfig
from sgjax.models.layer import Dense, LlamaWeights, XlaDense

XLA = XlaDense()


def make_kv(
    config: ModelConfig,
    num_slots: int,
    dtype: str,
    platform: str,
    sharding: jax.sharding.Sharding | None = None,
) -> KVCache:
    """Allocate a zeroed K/V pool.

    Args:
        config: the model.
        num_slots: N * S tokens, the scratch page included.
        dtype: "float32" or "bfloat16".
        platform: "cpu", "gpu" or "tpu"; on CPU 16-bit K/V are stored as uint16.
        sharding: of each layer's pools, whole heads on each device; None is one device.

    Raises:
        ConfigError: the dtype is not supported.
    """
    heads = (num_slots, config.kv_size)
    devices = 1 if sharding is None else heads[1] // sharding.shard_shape(heads)[1]
    shape = (num_slots, row_width(config.kv_size, platform, devices))
    stored = pool_dtype(dtype, platform)
    leaves = [jnp.zeros(shape, stored, device=sharding) for _ in range(2 * config.num_layers)]
    return KVCache(k=tuple(leaves[::2]), v=tuple(leaves[1::2]))


def stored_bytes(config: ModelConfig, dtype: str, platform: str, devices: int = 1) -> int:
    """Return the bytes that a token takes in the pools of `make_kv`, of all layers and devices."""
    width = row_width(config.kv_size, platform, devices)
    return config.kv_bytes_per_token(dtype) // config.kv_size * width


def forward(
    config: ModelConfig,
    weights: LlamaWeights,
    kv: KVCache,
    batch: Batch,
    attention: Attention,
    dense: Dense = XLA,
    wanted: tuple[jax.Array, jax.Array] | None = None,
) -> tuple[jax.Array, KVCache]:
    """Extend the batch's sequences by its tokens.

    Layers are unrolled: a scan would carry the pool through a loop and copy it. Of the last layer
    all tokens' keys and values are needed, but what comes after attention only where hidden states
    are wanted.

    Args:
        config: the model.
        weights: its weights; products are of their dtype, all else is float32.
        kv: K/V of all earlier tokens.
        batch: the new tokens.
        attention: writes the new K/V, then attends.
        dense: does all else.
        wanted: indices i32[R] into T of the tokens whose hidden states are wanted, and bool[R]
            which of them are no padding; None wants all T.

    Returns:
        Hidden states f32[R, E] before the final norm, and the K/V pool with the new tokens in it.
    """
    layout = batch.layout
    used = layout.used
    dtype = weights.embed.dtype
    x = weights.embed[batch.tokens].astype(jnp.float32)
    cos, sin = rope_angles(config, layout.positions)
    k_pools, v_pools = list(kv.k), list(kv.v)
    last = len(weights.layers) - 1
    for i, layer in enumerate(weights.layers):
        with jax.named_scope(f"layer{i}"):
            q, k, v = dense.before(config, layer, x, cos, sin, used, dtype)
            attended, k_pools[i], v_pools[i] = attention(q, k, v, k_pools[i], v_pools[i], layout)
            # With many prompt log-probabilities there can be more rows than tokens.
            if i == last and wanted is not None and len(wanted[0]) < len(x):
                rows, used = wanted
                x, attended, wanted = x[rows], attended[rows], None
            x = dense.after(config, layer, x, attended, used)
    if wanted is not None:
        x = x[wanted[0]]
    return x, KVCache(k=tuple(k_pools), v=tuple(v_pools))


def logits(
    config: ModelConfig,
    weights: LlamaWeights,
    hidden: jax.Array,
    used: jax.Array | None = None,
    dense: Dense = XLA,
) -> jax.Array:
    """Return f32[R, V] next-token logits of hidden states f32[R, E] from `forward`.

    Of rows that are not `used`, bool[R], they mean nothing; None uses all.
    """
    used = jnp.ones(hidden.shape[0], bool) if used is None else used
    with jax.named_scope("head"):
        return dense.logits(config, weights, hidden, used)


def rope_frequencies(config: ModelConfig) -> NDArray[np.float32]:
    """Return f32[D / 2] angles per position, scaled as the config says."""
    D = config.head_dim
    freq = np.float32(config.rope_theta) ** (-np.arange(0, D, 2, dtype=np.float32) / np.float32(D))
    scaling = config.rope_scaling
    if isinstance(scaling, LinearScaling):
        freq = freq / np.float32(scaling.factor)
    elif isinstance(scaling, Llama3Scaling):
        # Share of the unscaled frequency: 0 for wavelengths too long for the pretraining context
        # to have shown, 1 for short ones, linear in the number of turns between.
        turns = scaling.original_max_position * freq / (2 * np.pi)
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
        freq = (1 - keep) * freq / scaling.factor + keep * freq
    return np.asarray(freq, np.float32)


def rope_angles(config: ModelConfig, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return cosines and sines f32[T, D / 2] of rotary angles at positions i32[T]."""
    angles = positions[:, None].astype(jnp.float32) * rope_frequencies(config)
    return jnp.cos(angles), jnp.sin(angles)
