"""Weights in 8 bits: each 64 columns of a row share a scale.

DEVICE. Imports jax, numpy, models.layer and errors. Matrices are rounded to the nearest of 255
codes once, after loading; the embedding is looked up, not multiplied, and stays as it is, so a head
that is tied to it gets a copy in 8 bits. The layout is the one that the CPU's instructions for
8 bits read (kernels/native/linear.h).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from sgjax.errors import UnsupportedBackend
from sgjax.models.layer import Int8Matrix, LayerWeights, LlamaWeights, Matrix

GROUP, PACK = 64, 16
"""Columns that share a scale; rows that lie together."""


def quantize(weights: LlamaWeights) -> LlamaWeights:
    """Return a dense model's weights with all matrices that are multiplied in 8 bits.

    Raises:
        UnsupportedBackend: the model is a mixture of experts.
    """
    if any(layer.router is not None for layer in weights.layers):
        raise UnsupportedBackend(
            "weights: int8 is not there for mixtures of experts; use weights: {type: stored}"
        )
    head = weights.embed if weights.head is None else weights.head
    layers = tuple(_layer(layer) for layer in weights.layers)
    return dataclasses.replace(weights, layers=layers, head=_matrix(head))


def _layer(layer: LayerWeights) -> LayerWeights:
    return dataclasses.replace(
        layer,
        q=_matrix(layer.q),
        k=_matrix(layer.k),
        v=_matrix(layer.v),
        o=_matrix(layer.o),
        gate=_matrix(layer.gate),
        up=_matrix(layer.up),
        down=_matrix(layer.down),
    )


def _matrix(matrix: Matrix) -> Int8Matrix:
    assert isinstance(matrix, jax.Array), "quantized once"
    O, I = matrix.shape  # noqa: E741 - the shape letters
    packs, groups = -(-O // PACK), -(-I // GROUP)
    values = np.zeros((packs * PACK, groups * GROUP), np.float32)
    values[:O, :I] = np.asarray(matrix, np.float32)
    by_group = values.reshape(packs, PACK, groups, GROUP)
    scales = np.abs(by_group).max(axis=3) / np.float32(127)
    codes = np.rint(by_group / np.where(scales > 0, scales, 1)[..., None]) + 128
    # [pack, row, group, column] -> [pack, group, four columns, row, column of the four].
    codes = codes.astype(np.uint8).reshape(packs, PACK, groups * GROUP // 4, 4)
    return Int8Matrix(
        codes=jnp.asarray(codes.transpose(0, 2, 1, 3)),
        scales=jnp.asarray(scales.transpose(0, 2, 1)),
        shape=(O, I),
    )
