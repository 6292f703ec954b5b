"""The forward pass against numpy, and incremental computation against computation in one go."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgjax.errors import ModelLoadError
from sgjax.kernels.batch import Batch
from sgjax.kernels.cpu import CpuAttention
from sgjax.models import layer, llama
from sgjax.models.config import LinearScaling, Llama3Scaling, ModelConfig
from sgjax.models.weights import from_tensors, random_weights, tensor_shapes
from tests.kernels.ragged import Extend, pack
from tests.models import naive

BASE = ModelConfig(
    architecture="llama",
    vocab_size=61,
    hidden_size=24,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    ffn_size=32,
    max_position=64,
)
VARIANTS = {
    "gqa": BASE,
    "mqa": dataclasses.replace(BASE, num_kv_heads=1),
    "mha": dataclasses.replace(BASE, num_kv_heads=6, norm_eps=1e-5),
    "tied": dataclasses.replace(BASE, tie_embeddings=True),
    "bias": dataclasses.replace(BASE, architecture="qwen2", qkv_bias=True),
    "theta": dataclasses.replace(BASE, rope_theta=500.0),
    "linear": dataclasses.replace(BASE, rope_scaling=LinearScaling(4.0)),
    "llama3": dataclasses.replace(BASE, rope_scaling=Llama3Scaling(8.0, 1.0, 4.0, 32)),
}
S, D, G, BQ, P = 4, 2, 3, 8, 8
PAGES = (3, 9, 5, 2, 7, 4)
TOKENS = [int(t) for t in np.random.default_rng(1).integers(0, 61, 22)]


@functools.cache
def forward(config):
    def run(weights, kv, batch):
        hidden, kv = llama.forward(config, weights, kv, batch, CpuAttention(S, chunk=8))
        return llama.logits(config, weights, hidden), kv

    return jax.jit(run)


def extend(config, weights, kv, start, end):
    """Compute tokens [start, end) of TOKENS; return their logits and the pool."""
    packed = pack([Extend(PAGES, start, end)], S, D, G, BQ, P)
    tokens = np.zeros(D + G * BQ, np.int32)
    tokens[packed.places[0]] = TOKENS[start:end]
    batch = Batch(tokens=tokens, layout=packed.layout, logit_rows=None, targets=None, sampling=None)
    out, kv = forward(config)(weights, kv, batch)
    return np.asarray(out)[packed.places[0]], kv


@pytest.mark.parametrize("name", VARIANTS)
def test_forward_equals_the_formulas_in_numpy(name):
    config = VARIANTS[name]
    weights = random_weights(config, "float32", 0)
    got, _ = extend(config, weights, llama.make_kv(config, 48, "float32", "cpu"), 0, len(TOKENS))
    np.testing.assert_allclose(got, naive.logits(config, weights, TOKENS), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [[21], [5, 21, 0], list(range(21, -1, -1)) * 2])
def test_hidden_states_wanted_of_some_tokens_are_those_of_all(rows):
    """Fewer rows than tokens skip the end of the last layer; more than tokens are allowed."""
    weights = random_weights(BASE, "float32", 0)
    packed = pack([Extend(PAGES, 0, 22)], S, D, G, BQ, P)
    tokens = np.zeros(D + G * BQ, np.int32)
    tokens[packed.places[0]] = TOKENS
    rest = {"logit_rows": None, "targets": None, "sampling": None}
    batch = Batch(tokens=tokens, layout=packed.layout, **rest)
    wanted = (np.array(packed.places[0], np.int32)[rows], np.ones(len(rows), bool))

    def run(wanted):
        kv = llama.make_kv(BASE, 48, "float32", "cpu")
        jitted = jax.jit(llama.forward, static_argnums=(0, 4, 5))
        attention = CpuAttention(S, chunk=8)
        return jitted(BASE, weights, kv, batch, attention, llama.XLA, wanted)

    (every, kv), (some, same_kv) = run(None), run(wanted)
    assert some.shape == (len(rows), BASE.hidden_size)
    np.testing.assert_allclose(some, every[wanted[0]], rtol=2e-5, atol=2e-5)
    for a, b in zip(jax.tree.leaves(kv), jax.tree.leaves(same_kv), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("cuts", [(0, 8, 16, 22), (0, 5, 6, 7, 20, 21, 22), (0, 1, 22)])
def test_chunks_and_decodes_give_the_same_as_one_go(cuts):
    weights = random_weights(BASE, "float32", 0)
    kv = llama.make_kv(BASE, 48, "float32", "cpu")
    whole, _ = extend(BASE, weights, kv, 0, len(TOKENS))
    parts = []
    for start, end in itertools.pairwise(cuts):
        part, kv = extend(BASE, weights, kv, start, end)
        parts.append(part)
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=2e-5, atol=2e-5)


def test_bfloat16_follows_float32():
    config = BASE
    weights = random_weights(config, "float32", 0)
    low = jax.tree.map(lambda x: x.astype(jnp.bfloat16), weights)
    got, _ = extend(config, low, llama.make_kv(config, 48, "bfloat16", "cpu"), 0, len(TOKENS))
    want = naive.logits(config, jax.tree.map(lambda x: x.astype(jnp.float32), low), TOKENS)
    assert got.dtype == np.float32
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_products_of_bfloat16_are_summed_in_float32(rows):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((rows, 576)), jnp.bfloat16)
    w = jnp.asarray(np.random.default_rng(1).standard_normal((24, 576)), jnp.bfloat16)
    got = layer.linear(x, w)
    assert got.dtype == jnp.float32
    # A sum rounded to bfloat16 would be off by up to 0.1 here.
    np.testing.assert_allclose(got, np.float32(x) @ np.float32(w).T, rtol=0, atol=1e-3)


def test_one_row_is_computed_like_many():
    x = np.random.default_rng(0).standard_normal((3, 24), np.float32)
    w = np.random.default_rng(1).standard_normal((5, 24), np.float32)
    many = layer.linear(jnp.asarray(x), jnp.asarray(w))
    assert layer.linear(jnp.asarray(x[:1]), jnp.asarray(w)).shape == (1, 5)
    np.testing.assert_allclose(layer.linear(jnp.asarray(x[:1]), jnp.asarray(w)), many[:1], 1e-5)
    np.testing.assert_allclose(many, x @ w.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["llama3", "linear", "theta"])
def test_rope_frequencies_equal_the_published_formulas(name):
    config = dataclasses.replace(VARIANTS[name], head_dim=64, num_heads=6)
    np.testing.assert_allclose(llama.rope_frequencies(config), naive.frequencies(config), 1e-6)


def test_random_weights_are_a_function_of_the_seed():
    a, b, c = (random_weights(BASE, "float32", seed) for seed in (0, 0, 1))
    assert jax.tree.all(jax.tree.map(lambda x, y: bool((x == y).all()), a, b))
    assert not bool((a.layers[0].q == c.layers[0].q).all())
    assert not bool((a.layers[0].q == a.layers[1].q).all())
    assert sum(x.size for x in jax.tree.leaves(a)) == BASE.param_count


def test_weights_are_read_by_name_and_checked_by_shape():
    shapes = tensor_shapes(VARIANTS["bias"])
    tensors = {
        name: np.full(shape, i, np.float32) for i, (name, shape) in enumerate(shapes.items())
    }
    weights = from_tensors(VARIANTS["bias"], tensors.__getitem__, "bfloat16")
    assert weights.layers[1].k_bias.dtype == jnp.bfloat16
    names = list(tensors)
    assert weights.layers[1].k_bias[0] == names.index("model.layers.1.self_attn.k_proj.bias")
    tensors["model.norm.weight"] = np.zeros(3, np.float32)
    with pytest.raises(ModelLoadError, match=r"model.norm.weight has shape \(3,\).*\(24,\)"):
        from_tensors(VARIANTS["bias"], tensors.__getitem__, "float32")
