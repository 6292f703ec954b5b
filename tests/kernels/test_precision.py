"""float32 means float32 on every device, whose compilers would round its products' operands."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from sgjax.engine.pack import Shape, dummy_batch
from sgjax.engine.step import step
from sgjax.kernels.pallas_gpu import PallasGpuAttention
from sgjax.kernels.pallas_tpu import PallasTpuAttention
from sgjax.kernels.reference import ReferenceAttention
from sgjax.models.llama import make_kv
from sgjax.models.presets import load_preset
from sgjax.models.weights import random_weights

TINY = dataclasses.replace(load_preset("tiny").config, head_dim=64, num_layers=1)
MIXTURE = dataclasses.replace(TINY, num_experts=4, experts_per_token=2)


def products(jaxpr):
    """Yield the products of a program, and of the programs within it."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("dot_general", "ragged_dot_general"):
            yield equation
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        ):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from products(inner)


@pytest.mark.parametrize("attention", [ReferenceAttention, PallasGpuAttention, PallasTpuAttention])
@pytest.mark.parametrize("config", [TINY, MIXTURE], ids=["dense", "mixture"])
def test_every_product_of_a_float32_step_is_asked_for_exactly(attention, config):
    batch = dummy_batch(Shape(D=2, G=1, BQ=16, P=2, X=0, Q=0, top=0), config.vocab_size)
    program = jax.make_jaxpr(
        lambda weights, kv, masks, batch: step(
            config, weights, kv, masks, batch,
            attention=attention(16), top=0, valid_vocab=config.vocab_size,
        )
    )(
        random_weights(config, "float32", 0),
        make_kv(config, 64, "float32", "cpu"),
        jnp.zeros((1, -(-config.vocab_size // 32)), jnp.uint32),
        batch,
    )  # fmt: skip
    found = list(products(program.jaxpr))
    assert len(found) >= 10
    for product in found:
        precision = product.params["precision"]
        assert precision == (jax.lax.Precision.HIGHEST,) * 2, product
