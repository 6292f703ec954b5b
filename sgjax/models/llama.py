"""The Llama family's forward pass: pure functions over a weight pytree.

DEVICE. Imports jax, flax, kernels, models.config and models.moe. Llama, Mistral, Mixtral and Qwen2
differ only in their configs. Owns the layout of the weights in memory and the creation of the K/V
pool that matches it.
Shape letters as in kernels.batch; c runs over the two halves of the gated MLP.
"""

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sgjax.kernels.base import Attention
from sgjax.kernels.batch import Batch, KVCache
from sgjax.kernels.storage import pool_dtype
from sgjax.models.config import LinearScaling, Llama3Scaling, ModelConfig
from sgjax.models.moe import moe


@flax.struct.dataclass
class LayerWeights:
    """Weights of one layer; matrices are [out, in], as checkpoints store them.

    Attributes:
        attn_norm: f[E].
        q: f[H * D, E], k, v: f[K * D, E]; rotary pairs are (i, i + D/2) of each head.
        q_bias, k_bias, v_bias: f[H * D], f[K * D], f[K * D], or None.
        o: f[E, H * D].
        mlp_norm: f[E].
        gate, up: f[F, E]; of a mixture of X experts f[X, E, F] (see models.moe).
        down: f[E, F]; of a mixture f[X, F, E].
        router: f[X, E], or None where the MLP is dense.
    """

    attn_norm: jax.Array
    q: jax.Array
    k: jax.Array
    v: jax.Array
    q_bias: jax.Array | None
    k_bias: jax.Array | None
    v_bias: jax.Array | None
    o: jax.Array
    mlp_norm: jax.Array
    gate: jax.Array
    up: jax.Array
    down: jax.Array
    router: jax.Array | None = None


@flax.struct.dataclass
class LlamaWeights:
    """Weights of a model.

    Attributes:
        embed: f[V, E].
        layers: L layers.
        norm: f[E] before the head.
        head: f[V, E], or None where the embedding is the head.
    """

    embed: jax.Array
    layers: tuple[LayerWeights, ...]
    norm: jax.Array
    head: jax.Array | None


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
        sharding: of each layer's pools; None is one device.

    Raises:
        ConfigError: the dtype is not supported.
    """
    shape, stored = (num_slots, config.kv_size), pool_dtype(dtype, platform)
    leaves = [jnp.zeros(shape, stored, device=sharding) for _ in range(2 * config.num_layers)]
    return KVCache(k=tuple(leaves[::2]), v=tuple(leaves[1::2]))


def forward(
    config: ModelConfig, weights: LlamaWeights, kv: KVCache, batch: Batch, attention: Attention
) -> tuple[jax.Array, KVCache]:
    """Extend the batch's sequences by its tokens.

    Layers are unrolled: a scan would carry the pool through a loop and copy it.

    Args:
        config: the model.
        weights: its weights; products are of their dtype, all else is float32.
        kv: K/V of all earlier tokens.
        batch: the new tokens.
        attention: writes the new K/V, then attends.

    Returns:
        Hidden states f32[T, E] before the final norm, and the K/V pool with the new tokens in it.
    """
    layout = batch.layout
    dtype = weights.embed.dtype
    x = weights.embed[batch.tokens].astype(jnp.float32)
    cos, sin = rope_angles(config, layout.positions)
    heads = (-1, config.num_heads, config.head_dim)
    kv_heads = (-1, config.num_kv_heads, config.head_dim)
    k_pools, v_pools = list(kv.k), list(kv.v)
    for i, layer in enumerate(weights.layers):
        with jax.named_scope(f"layer{i}/attention"):
            normed = rms_norm(x, layer.attn_norm, config.norm_eps)
            q = linear(normed, layer.q, layer.q_bias).reshape(heads)
            k = linear(normed, layer.k, layer.k_bias).reshape(kv_heads)
            v = linear(normed, layer.v, layer.v_bias).reshape(kv_heads)
            q, k = rotate(q, cos, sin).astype(dtype), rotate(k, cos, sin).astype(dtype)
            attended, k_pools[i], v_pools[i] = attention(
                q, k, v.astype(dtype), k_pools[i], v_pools[i], layout
            )
            x = x + linear(attended.reshape(-1, config.q_size), layer.o)
        with jax.named_scope(f"layer{i}/mlp"):
            x = x + mlp(config, layer, rms_norm(x, layer.mlp_norm, config.norm_eps))
    return x, KVCache(k=tuple(k_pools), v=tuple(v_pools))


def mlp(config: ModelConfig, layer: LayerWeights, normed: jax.Array) -> jax.Array:
    """Return f32[T, E], the gated MLP of normed hidden states f32[T, E], or the mixture of them."""
    if layer.router is not None:
        per_token = config.experts_per_token
        return moe(normed, layer.router, layer.gate, layer.up, layer.down, per_token)
    gated = jax.nn.silu(linear(normed, layer.gate)) * linear(normed, layer.up)
    return linear(gated, layer.down)


def logits(config: ModelConfig, weights: LlamaWeights, hidden: jax.Array) -> jax.Array:
    """Return f32[R, V] next-token logits of hidden states f32[R, E] from `forward`."""
    with jax.named_scope("head"):
        normed = rms_norm(hidden, weights.norm, config.norm_eps)
        head = weights.embed if weights.head is None else weights.head
        return linear(normed, head)


def linear(x: jax.Array, weight: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    """Return f32[T, O], x f[T, I] in the dtype of weight f[O, I] times it, plus bias f[O].

    A product of bfloat16 is left in float32: with bfloat16 output XLA's CPU backend misses its
    library, and what follows is elementwise and faster in float32 than with conversions.
    """
    rows = x.shape[0]
    x = x.astype(weight.dtype)
    if rows == 1:
        # One row misses the library as well: a naive loop, ten times slower than two rows.
        x = jnp.concatenate([x, x])
    y = jnp.einsum("ti,oi->to", x, weight, preferred_element_type=jnp.float32)[:rows]
    return y if bias is None else y + bias


def rms_norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    """Return f32[T, E], x / rms(x) * scale."""
    mean = jnp.mean(x * x, axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(mean + eps) * scale


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


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Rotate the pairs (i, i + D/2) of each head of f32[T, H, D] by angles f32[T, D / 2]."""
    low, high = jnp.split(x, 2, axis=-1)
    c, s = cos[:, None, :], sin[:, None, :]
    return jnp.concatenate([low * c - high * s, high * c + low * s], axis=-1)
