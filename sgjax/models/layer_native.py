"""What a layer computes beside attention in C++ (kernels/native), two calls a layer.

DEVICE. Imports jax, kernels.native and models.layer. XLA's CPU backend packs the weights of each
product anew in every step; these calls read them where they lie, once, and leave padding out. A
token's results do not depend on the batch it is in.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgjax.kernels import native
from sgjax.models.config import ModelConfig
from sgjax.models.int8 import GROUP, PACK
from sgjax.models.layer import Int8Matrix, LayerWeights, LlamaWeights, Matrix

MATRICES = ("q", "k", "v", "o", "gate", "up", "down")
VECTORS = ("attn_norm", "mlp_norm", "q_bias", "k_bias", "v_bias")


@dataclass(frozen=True)
class NativeDense:
    """Foreign calls on XLA's own threads, for dense models on one CPU.

    Weights of float32 are multiplied in float32, of bfloat16 by activations rounded to bfloat16, of
    8 bits by activations rounded to 8 bits in groups of 64; all are summed in float32.

    Attributes:
        isa: instruction set, one of `native.ISAS`; the processor must have it.
    """

    isa: str
    name: str = "native"

    def prepare(self, weights: LlamaWeights) -> LlamaWeights:
        """Return the weights as the calls read them.

        Norms and biases are float32, so that no step converts them. For `avx512_bf16` matrices of
        bfloat16 are packed; so is a copy of an embedding that is the head too.
        """

        def ready(layer: LayerWeights) -> LayerWeights:
            vectors = {name: getattr(layer, name) for name in VECTORS}
            changed: dict[str, Any] = {
                n: v.astype(jnp.float32) for n, v in vectors.items() if v is not None
            }
            changed |= {name: self._packed(getattr(layer, name)) for name in MATRICES}
            return dataclasses.replace(layer, **changed)

        head = weights.embed if weights.head is None else weights.head
        return dataclasses.replace(
            weights,
            layers=tuple(map(ready, weights.layers)),
            norm=weights.norm.astype(jnp.float32),
            head=self._packed(head),
        )

    def _packed(self, matrix: Matrix) -> Matrix:
        """Return bf16[O / 16, I / 2, 16, 2] for a matrix that is to be packed, others as they are.

        Both axes are padded to whole packs and groups, as kernels/native/linear.h says.
        """
        if isinstance(matrix, Int8Matrix) or matrix.dtype != jnp.bfloat16:
            return matrix
        if self.isa != "avx512_bf16":
            return matrix
        O, I = matrix.shape  # noqa: E741 - the shape letters
        padded = jnp.pad(matrix, ((0, -O % PACK), (0, -I % GROUP)))
        return padded.reshape(-(-O // PACK), PACK, padded.shape[1] // 2, 2).transpose(0, 2, 1, 3)

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
        """See `Dense`."""
        T, D = x.shape[0], config.head_dim
        heads = [config.num_heads, config.num_kv_heads, config.num_kv_heads]
        results = [_like((T, n, D), dtype) for n in heads]
        none = _absent()
        projections = []
        for matrix, bias in (
            (layer.q, layer.q_bias), (layer.k, layer.k_bias), (layer.v, layer.v_bias)
        ):  # fmt: skip
            projections += [*_buffers(matrix), none if bias is None else bias]
        q, k, v = jax.ffi.ffi_call(native.BEFORE, results)(
            x, used, layer.attn_norm, cos, sin, *projections, **self._settings(config)
        )
        return q, k, v

    def after(
        self,
        config: ModelConfig,
        layer: LayerWeights,
        x: jax.Array,
        attended: jax.Array,
        used: jax.Array,
    ) -> jax.Array:
        """See `Dense`."""
        matrices = [
            buffer
            for matrix in (layer.o, layer.gate, layer.up, layer.down)
            for buffer in _buffers(matrix)
        ]
        out: jax.Array = jax.ffi.ffi_call(native.AFTER, _like(x.shape, jnp.float32))(
            x,
            used,
            attended,
            layer.mlp_norm,
            *matrices,
            ffn=np.int64(config.ffn_size),
            **self._settings(config),
        )
        return out

    def logits(
        self, config: ModelConfig, weights: LlamaWeights, hidden: jax.Array, used: jax.Array
    ) -> jax.Array:
        """See `Dense`."""
        head = weights.embed if weights.head is None else weights.head
        like = _like((hidden.shape[0], config.vocab_size), jnp.float32)
        out: jax.Array = jax.ffi.ffi_call(native.LOGITS, like)(
            hidden, used, weights.norm, *_buffers(head), **self._settings(config)
        )
        return out

    def _settings(self, config: ModelConfig) -> dict[str, np.generic]:
        return {
            "eps": np.float32(config.norm_eps),
            "isa": np.int64(native.ISAS.index(self.isa)),
        }


def native_dense() -> NativeDense:
    """Return the backend for the best instruction set here, built on first use.

    Raises:
        UnsupportedBackend: no compiler, or it fails.
    """
    return NativeDense(native.load())


def _buffers(matrix: Matrix) -> tuple[jax.Array, jax.Array]:
    """Return a matrix as a call takes it: elements and, of 8 bits, scales."""
    if isinstance(matrix, Int8Matrix):
        return matrix.codes, matrix.scales
    return matrix, _absent()


def _absent() -> jax.Array:
    return jnp.zeros(0, jnp.float32)


def _like(shape: tuple[int, ...], dtype: jnp.dtype) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]
