"""Tensor parallelism: one table from logical axes to the mesh, and what a degree asks of a model.

DEVICE. Imports jax, models and errors. Megatron's split: attention by heads, the MLP by its inner
width, embedding and head by vocabulary; XLA puts one all-reduce behind the attention's output
projection and one behind the MLP's. The batch is replicated, K/V are split by heads, page ids are
the same everywhere.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.models.config import ModelConfig
from sgjax.models.layer import LlamaWeights, plain

VOCAB_BLOCK = 256
"""Sampling looks at blocks of so many ids; a device's share is a whole number of them, or XLA would
gather all logits to cut them."""

TENSOR = "tensor"
"""The mesh axis."""

AXES: dict[str, tuple[str | None, ...]] = {
    "embed": ("vocab", None),
    "head": ("vocab", None),
    "q": ("heads", None),
    "k": ("kv_heads", None),
    "v": ("kv_heads", None),
    "q_bias": ("heads",),
    "k_bias": ("kv_heads",),
    "v_bias": ("kv_heads",),
    "o": (None, "heads"),
    "gate": ("ffn", None),
    "up": ("ffn", None),
    "down": (None, "ffn"),
    "router": (None, None),
    "norm": (None,),
    "attn_norm": (None,),
    "mlp_norm": (None,),
}
"""Logical axes of each weight, by the name of its field."""

EXPERT_AXES: dict[str, tuple[str | None, ...]] = {
    "gate": (None, None, "ffn"),
    "up": (None, None, "ffn"),
    "down": (None, "ffn", None),
}
"""Of a mixture's: every device holds its share of every expert, so none waits for another's."""

RULES = {"vocab": TENSOR, "heads": TENSOR, "kv_heads": TENSOR, "ffn": TENSOR}
"""The mesh axis of each logical axis."""

REPLICATED: PartitionSpec = PartitionSpec()  # type: ignore[no-untyped-call]
POOL: PartitionSpec = PartitionSpec(None, TENSOR)  # type: ignore[no-untyped-call]
"""How a layer's K/V pool [N * S, width] is split: whole heads."""
HEADS: PartitionSpec = PartitionSpec(None, TENSOR, None)  # type: ignore[no-untyped-call]
"""How queries, keys and values [T, H, D] are."""


def make_mesh(tensor: int) -> Mesh:
    """Return a mesh of that many devices.

    Raises:
        UnsupportedBackend: there are not so many.
    """
    devices = jax.devices()
    if tensor > len(devices):
        raise UnsupportedBackend(
            f"mesh: tensor={tensor} needs that many devices, found {len(devices)} of platform "
            f"{devices[0].platform!r}; lower it"
        )
    return Mesh(np.array(devices[:tensor]), (TENSOR,), axis_types=(AxisType.Auto,))


def fit_config(config: ModelConfig, tensor: int) -> ModelConfig:
    """Return the architecture as `tensor` devices compute it.

    Where there are fewer kv heads than devices, each is repeated until every device has one; the
    vocabulary is padded to whole blocks a device.

    Raises:
        ConfigError: heads or the MLP's width cannot be split so.
    """
    K, H, F = config.num_kv_heads, config.num_heads, config.ffn_size
    problem = None
    if H % tensor:
        problem = f"{H} query heads are no multiple of it"
    elif K % tensor and tensor % K:
        problem = f"{K} kv heads neither divide it nor are a multiple of it"
    elif F % tensor:
        problem = f"the MLP's {F} columns are no multiple of it"
    if problem:
        fits = [n for n in range(1, H + 1) if not (H % n or F % n or (K % n and n % K))]
        raise ConfigError(
            f"mesh: tensor={tensor} does not fit this model: {problem}; allowed: "
            f"{', '.join(map(str, fits))}"
        )
    grain = 1 if tensor == 1 else tensor * VOCAB_BLOCK
    vocab = -(-config.vocab_size // grain) * grain
    return dataclasses.replace(config, num_kv_heads=max(K, tensor), vocab_size=vocab)


def fit_weights(weights: LlamaWeights, config: ModelConfig, fitted: ModelConfig) -> LlamaWeights:
    """Return weights of `config` as weights of `fitted`, which `fit_config` made from it."""
    copies, D = fitted.num_kv_heads // config.num_kv_heads, config.head_dim
    more = fitted.vocab_size - config.vocab_size

    def repeat(x: Any) -> Any:  # an array, or None for an absent bias
        if x is None or copies == 1:
            return x
        heads = x.reshape(config.num_kv_heads, D, *x.shape[1:])
        return jnp.repeat(heads, copies, axis=0).reshape(-1, *x.shape[1:])

    def pad(x: jax.Array) -> jax.Array:
        return jnp.pad(x, ((0, more), (0, 0))) if more else x

    kv = ("k", "v", "k_bias", "v_bias")
    layers = [
        dataclasses.replace(layer, **{name: repeat(getattr(layer, name)) for name in kv})
        for layer in weights.layers
    ]
    head = None if weights.head is None else pad(plain(weights.head))
    return dataclasses.replace(weights, embed=pad(weights.embed), head=head, layers=tuple(layers))


def spec(path: tuple[Any, ...], ndim: int) -> PartitionSpec:
    """Return how the weight at a pytree path, of so many axes, is split."""
    name = path[-1].name
    logical = EXPERT_AXES[name] if ndim == 3 else AXES[name]
    axes = [RULES[axis] if axis else None for axis in logical]
    return PartitionSpec(*axes)  # type: ignore[no-untyped-call]


def shardings(weights: LlamaWeights, mesh: Mesh) -> LlamaWeights:
    """Return a pytree like the weights', of their shardings."""
    found: LlamaWeights = jax.tree_util.tree_map_with_path(
        lambda path, x: NamedSharding(mesh, spec(path, x.ndim)), weights
    )
    return found
