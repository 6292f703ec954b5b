"""One layer of the Llama family: its weights, and what it computes beside attention.

DEVICE. Imports jax, flax, models.config and models.moe. `Dense` is the protocol, `XlaDense` its
plain implementation for every platform; models.layer_native has the CPU's own.
"""

from dataclasses import dataclass
from typing import Protocol

import flax.struct
import jax
import jax.numpy as jnp

from sgjax.kernels.precision import precision_of
from sgjax.models.config import ModelConfig
from sgjax.models.moe import moe


@flax.struct.dataclass
class Int8Matrix:
    """A matrix [O, I] in 8 bits, each 64 columns of a row with a scale; see models.int8.

    Attributes:
        codes: u8[O / 16, I / 4, 16, 4], the code + 128; both axes padded to whole packs and groups.
        scales: f32[O / 16, I / 64, 16].
        shape: (O, I).
    """

    codes: jax.Array
    scales: jax.Array
    shape: tuple[int, int] = flax.struct.field(pytree_node=False)  # type: ignore[no-untyped-call]


Matrix = jax.Array | Int8Matrix


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
    q: Matrix
    k: Matrix
    v: Matrix
    q_bias: jax.Array | None
    k_bias: jax.Array | None
    v_bias: jax.Array | None
    o: Matrix
    mlp_norm: jax.Array
    gate: Matrix
    up: Matrix
    down: Matrix
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
    head: Matrix | None


class Dense(Protocol):
    """What a layer computes beside attention; pure functions with static settings."""

    @property
    def name(self) -> str:
        """Return the backend's name, as `linear=` takes it and results record it."""
        ...

    def prepare(self, weights: LlamaWeights) -> LlamaWeights:
        """Return the weights as the other methods take them; called once, after loading."""
        ...

    def before(
        self,
        config: ModelConfig,
        layer: LayerWeights,
        x: jax.Array,
        cos: jax.Array,
        sin: jax.Array,
        used: jax.Array,
        dtype: jnp.dtype,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return what attention takes.

        Args:
            config: the model.
            layer: the layer's weights.
            x: f32[T, E] hidden states.
            cos, sin: f32[T, D / 2] of the rotary angles.
            used: bool[T] tokens that are no padding; what others get is finite, and no more.
            dtype: of the results.

        Returns:
            Rotated queries f[T, H, D], rotated keys f[T, K, D] and values f[T, K, D].
        """
        ...

    def after(
        self,
        config: ModelConfig,
        layer: LayerWeights,
        x: jax.Array,
        attended: jax.Array,
        used: jax.Array,
    ) -> jax.Array:
        """Return f32[T, E], hidden states with the layer's attention f[T, H, D] and MLP added."""
        ...

    def logits(
        self, config: ModelConfig, weights: LlamaWeights, hidden: jax.Array, used: jax.Array
    ) -> jax.Array:
        """Return f32[R, V] next-token logits of hidden states f32[R, E] before the final norm.

        Of rows that are not `used`, bool[R], they are finite, and no more.
        """
        ...


@dataclass(frozen=True)
class XlaDense:
    """XLA's own products."""

    name: str = "xla"

    def prepare(self, weights: LlamaWeights) -> LlamaWeights:
        """See `Dense`."""
        return weights

    def before(
        self,
        config: ModelConfig,
        layer: LayerWeights,
        x: jax.Array,
        cos: jax.Array,
        sin: jax.Array,
        used: jax.Array,
        dtype: jnp.dtype,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """See `Dense`; XLA's shapes are fixed, so padding is computed."""
        del used
        heads = (-1, config.num_heads, config.head_dim)
        kv_heads = (-1, config.num_kv_heads, config.head_dim)
        normed = rms_norm(x, layer.attn_norm, config.norm_eps)
        q = linear(normed, layer.q, layer.q_bias).reshape(heads)
        k = linear(normed, layer.k, layer.k_bias).reshape(kv_heads)
        v = linear(normed, layer.v, layer.v_bias).reshape(kv_heads)
        return rotate(q, cos, sin).astype(dtype), rotate(k, cos, sin).astype(dtype), v.astype(dtype)

    def after(
        self,
        config: ModelConfig,
        layer: LayerWeights,
        x: jax.Array,
        attended: jax.Array,
        used: jax.Array,
    ) -> jax.Array:
        """See `Dense`."""
        del used
        x = x + linear(attended.reshape(-1, config.q_size), layer.o)
        with jax.named_scope("mlp"):
            return x + mlp(config, layer, rms_norm(x, layer.mlp_norm, config.norm_eps))

    def logits(
        self, config: ModelConfig, weights: LlamaWeights, hidden: jax.Array, used: jax.Array
    ) -> jax.Array:
        """See `Dense`."""
        del used
        normed = rms_norm(hidden, weights.norm, config.norm_eps)
        return linear(normed, weights.embed if weights.head is None else weights.head)


def mlp(config: ModelConfig, layer: LayerWeights, normed: jax.Array) -> jax.Array:
    """Return f32[T, E], the gated MLP of normed hidden states f32[T, E], or the mixture of them."""
    if layer.router is not None:
        per_token = config.experts_per_token
        gate, up, down = plain(layer.gate), plain(layer.up), plain(layer.down)
        return moe(normed, layer.router, gate, up, down, per_token)
    gated = jax.nn.silu(linear(normed, layer.gate)) * linear(normed, layer.up)
    return linear(gated, layer.down)


def linear(x: jax.Array, weight: Matrix, bias: jax.Array | None = None) -> jax.Array:
    """Return f32[T, O], x f[T, I] in the dtype of weight f[O, I] times it, plus bias f[O].

    Weights of 8 bits are multiplied as bfloat16. A product of bfloat16 is left in float32: with
    bfloat16 output XLA's CPU backend misses its library, and what follows is elementwise and faster
    in float32 than with conversions.
    """
    rows = x.shape[0]
    weight = plain(weight)
    x = x.astype(weight.dtype)
    if rows == 1:
        # One row misses the library as well: a naive loop, ten times slower than two rows.
        x = jnp.concatenate([x, x])
    y = jnp.einsum(
        "ti,oi->to", x, weight,
        precision=precision_of(x.dtype), preferred_element_type=jnp.float32,
    )[:rows]  # fmt: skip
    return y if bias is None else y + bias


def plain(matrix: Matrix) -> jax.Array:
    """Return a matrix as one array: bf16[O, I] of what the codes of one in 8 bits stand for."""
    if not isinstance(matrix, Int8Matrix):
        return matrix
    O, I = matrix.shape  # noqa: E741 - the shape letters
    packs, groups, rows = matrix.scales.shape
    codes = matrix.codes.reshape(packs, groups, -1, rows, 4).astype(jnp.float32) - 128
    values = codes * matrix.scales[:, :, None, :, None]
    return jnp.moveaxis(values, 3, 1).reshape(packs * rows, -1)[:O, :I].astype(jnp.bfloat16)


def rms_norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    """Return f32[T, E], x / rms(x) * scale."""
    mean = jnp.mean(x * x, axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(mean + eps) * scale


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Rotate the pairs (i, i + D/2) of each head of f32[T, H, D] by angles f32[T, D / 2]."""
    low, high = jnp.split(x, 2, axis=-1)
    c, s = cos[:, None, :], sin[:, None, :]
    return jnp.concatenate([low * c - high * s, high * c + low * s], axis=-1)
