"""Build a weight pytree from named tensors, or from a seed.

DEVICE. Imports jax, numpy, models.llama and models.config. A loader supplies `read`, a function
from a Hugging Face tensor name to an array; this file knows which names a config needs and where
they go. One tensor is converted at a time, so the peak is the weights and one tensor, or as many
random ones as are drawn at once.
"""

import itertools
import os
import re
import zlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sgjax.errors import ConfigError, ModelLoadError
from sgjax.models.config import DTYPE_BYTES, ModelConfig
from sgjax.models.layer import LayerWeights, LlamaWeights

Read = Callable[[str], NDArray[np.generic]]
"""Returns the tensor of that Hugging Face name ([out, in], any float dtype)."""


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the Hugging Face names and shapes of all tensors a model has."""
    E, F, V = config.hidden_size, config.ffn_size, config.vocab_size
    q, kv = config.q_size, config.kv_size
    layer = {
        "input_layernorm.weight": (E,),
        "self_attn.q_proj.weight": (q, E),
        "self_attn.k_proj.weight": (kv, E),
        "self_attn.v_proj.weight": (kv, E),
        "self_attn.o_proj.weight": (E, q),
        "post_attention_layernorm.weight": (E,),
    }
    if config.num_experts:
        layer["block_sparse_moe.gate.weight"] = (config.num_experts, E)
        for x in range(config.num_experts):
            expert = f"block_sparse_moe.experts.{x}."
            layer |= {f"{expert}w1.weight": (F, E), f"{expert}w3.weight": (F, E)}
            layer[f"{expert}w2.weight"] = (E, F)
    else:
        layer |= {
            "mlp.gate_proj.weight": (F, E),
            "mlp.up_proj.weight": (F, E),
            "mlp.down_proj.weight": (E, F),
        }
    if config.qkv_bias:
        layer |= {
            "self_attn.q_proj.bias": (q,),
            "self_attn.k_proj.bias": (kv,),
            "self_attn.v_proj.bias": (kv,),
        }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (V, E)}
    for i in range(config.num_layers):
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (E,)
    if not config.tie_embeddings:
        shapes["lm_head.weight"] = (V, E)
    return shapes


def from_tensors(config: ModelConfig, read: Read, dtype: str) -> LlamaWeights:
    """Assemble a model's weights.

    Args:
        config: the model.
        read: called once for each name of `tensor_shapes(config)`.
        dtype: "float32" or "bfloat16".

    Raises:
        ConfigError: another dtype.
        ModelLoadError: a tensor has the wrong shape; and whatever `read` raises.
    """
    if dtype not in DTYPE_BYTES:
        raise ConfigError(f"dtype={dtype!r} is not supported; allowed: {', '.join(DTYPE_BYTES)}")
    shapes = tensor_shapes(config)

    def take(name: str) -> jax.Array:
        tensor = read(name)
        if tensor.shape != shapes[name]:
            raise ModelLoadError(
                f"tensor {name} has shape {tensor.shape}; the config asks for {shapes[name]}"
            )
        return jnp.asarray(tensor, dtype)

    def project(at: str, dense: str, expert: str) -> jax.Array:
        if not config.num_experts:
            return take(f"{at}mlp.{dense}.weight")
        names = [f"{at}block_sparse_moe.experts.{x}.{expert}" for x in range(config.num_experts)]
        return jnp.stack([take(f"{name}.weight").T for name in names])

    def layer(i: int) -> LayerWeights:
        at = f"model.layers.{i}."
        attn, bias = at + "self_attn.", config.qkv_bias
        return LayerWeights(
            attn_norm=take(at + "input_layernorm.weight"),
            q=take(attn + "q_proj.weight"),
            k=take(attn + "k_proj.weight"),
            v=take(attn + "v_proj.weight"),
            q_bias=take(attn + "q_proj.bias") if bias else None,
            k_bias=take(attn + "k_proj.bias") if bias else None,
            v_bias=take(attn + "v_proj.bias") if bias else None,
            o=take(attn + "o_proj.weight"),
            mlp_norm=take(at + "post_attention_layernorm.weight"),
            gate=project(at, "gate_proj", "w1"),
            up=project(at, "up_proj", "w3"),
            down=project(at, "down_proj", "w2"),
            router=take(at + "block_sparse_moe.gate.weight") if config.num_experts else None,
        )

    return LlamaWeights(
        embed=take("model.embed_tokens.weight"),
        layers=tuple(layer(i) for i in range(config.num_layers)),
        norm=take("model.norm.weight"),
        head=None if config.tie_embeddings else take("lm_head.weight"),
    )


def random_weights(config: ModelConfig, dtype: str, seed: int) -> LlamaWeights:
    """Draw weights of a real architecture's shapes; a seed gives the same ones everywhere.

    Args:
        config: the model.
        dtype: "float32" or "bfloat16".
        seed: of the draw.

    Returns:
        Matrices from N(0, 1 / in), so that activations and logits stay near unit scale at any
        size; norms near 1, biases near 0.

    Raises:
        ConfigError: another dtype.
    """
    shapes = tensor_shapes(config)

    def draw(name: str) -> NDArray[np.float32]:
        # Seeded by name, so that a tensor does not depend on the order of drawing.
        rng = np.random.default_rng((seed, zlib.crc32(name.encode())))
        noise = rng.standard_normal(shapes[name], np.float32)
        if noise.ndim == 2:
            return noise * np.float32(shapes[name][1] ** -0.5)
        return np.float32(name.endswith("norm.weight")) + np.float32(0.1) * noise

    names = iter(sorted(shapes, key=_layer_of))
    drawn: dict[str, Future[NDArray[np.float32]]] = {}
    # Billions of draws take a minute of one core, so all draw, a few tensors ahead of the reader.
    with ThreadPoolExecutor(workers := min(os.cpu_count() or 1, 16)) as pool:

        def read(name: str) -> NDArray[np.float32]:
            for ahead in itertools.islice(names, max(0, workers - len(drawn))):
                drawn[ahead] = pool.submit(draw, ahead)
            future = drawn.pop(name, None)
            return draw(name) if future is None else future.result()

        return from_tensors(config, read, dtype)


def _layer_of(name: str) -> tuple[bool, int]:
    """Return where about a tensor is read: the embedding first, then layer by layer, the head."""
    numbers = re.findall(r"\.layers\.(\d+)\.", name)
    return "embed" not in name, int(numbers[0]) if numbers else 1 << 30
