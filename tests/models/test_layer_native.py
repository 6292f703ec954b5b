"""The C++ products against XLA's and numpy's, for every instruction set that this machine has."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgjax.engine.engine import Engine
from sgjax.errors import UnsupportedBackend
from sgjax.kernels import native
from sgjax.models import llama
from sgjax.models.config import ModelConfig
from sgjax.models.dense import select_dense
from sgjax.models.int8 import GROUP, quantize
from sgjax.models.layer import XlaDense, plain
from sgjax.models.layer_native import NativeDense
from sgjax.models.presets import load_preset
from sgjax.models.weights import random_weights

pytestmark = pytest.mark.skipif(
    native.find_compiler() is None, reason="no C++ compiler: linear='native' cannot be built here"
)

CONFIG = ModelConfig(
    architecture="qwen2",
    vocab_size=83,
    hidden_size=200,  # no whole number of vectors, nor of groups
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    ffn_size=150,
    max_position=512,
    qkv_bias=True,
    norm_eps=1e-5,
)
TOKENS = 133
"""More than a task computes at a time."""


def isas():
    return native.ISAS[: native.ISAS.index(native.load()) + 1]


def everything(dense, weights, x, attended, used=None):
    """Return q, k, v, the layer's result and the logits, as float32."""
    used = jnp.ones(len(x), bool) if used is None else jnp.asarray(used)
    weights = dense.prepare(weights)
    cos, sin = llama.rope_angles(CONFIG, jnp.arange(len(x)))
    layer, dtype = weights.layers[0], weights.embed.dtype
    out = [
        *dense.before(CONFIG, layer, x, cos, sin, used, dtype),
        dense.after(CONFIG, layer, x, attended.astype(dtype), used),
        dense.logits(CONFIG, weights, x, used),
    ]
    return [np.asarray(y, np.float32) for y in out]


def inputs(tokens):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((tokens, CONFIG.hidden_size), np.float32)
    attended = rng.standard_normal((tokens, CONFIG.num_heads, CONFIG.head_dim), np.float32)
    return jnp.asarray(x), jnp.asarray(attended)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2)])
@pytest.mark.parametrize("tokens", [1, 3, TOKENS])
def test_native_products_equal_xlas(tokens, dtype, tolerance):
    weights = random_weights(CONFIG, dtype, 0)
    x, attended = inputs(tokens)
    want = everything(XlaDense(), weights, x, attended)
    for isa in isas():
        for got, y in zip(everything(NativeDense(isa), weights, x, attended), want, strict=True):
            assert got.shape == y.shape
            assert np.abs(got - y).max() <= tolerance * max(1, np.abs(y).max()), isa


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_padding_is_left_out_and_changes_nothing(dtype):
    weights = random_weights(CONFIG, dtype, 0)
    x, attended = inputs(TOKENS)
    used = np.random.default_rng(3).random(TOKENS) < 0.4
    broken = [jnp.where(used.reshape(-1, *[1] * (y.ndim - 1)), y, jnp.nan) for y in (x, attended)]
    dense = NativeDense(native.load())
    want = everything(dense, weights, x, attended)
    for got, y in zip(everything(dense, weights, *broken, used), want, strict=True):
        np.testing.assert_array_equal(got[used], y[used])
        assert not np.any(got[~used])


@pytest.mark.parametrize("tokens", [1, 2, 3, 6])
def test_products_in_8_bits_are_those_of_rounded_factors(tokens):
    weights = quantize(random_weights(CONFIG, "float32", 0))
    x = inputs(tokens)[0]
    normed = np.asarray(x) / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + CONFIG.norm_eps)
    normed = np.pad(normed * np.asarray(weights.norm), ((0, 0), (0, -x.shape[1] % GROUP)))
    groups = normed.reshape(tokens, -1, GROUP)
    scales = np.abs(groups).max(axis=2, keepdims=True) / 127
    rounded = (np.rint(groups / scales) * scales).reshape(normed.shape)[:, : x.shape[1]]
    codes = weights.head.codes.astype(jnp.float32) - 128
    assert np.abs(codes).max() == 127
    want = rounded @ _exact(weights.head).T
    for isa in isas():
        dense = NativeDense(isa)
        got = dense.logits(CONFIG, dense.prepare(weights), x, jnp.ones(tokens, bool))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def _exact(matrix):
    """Return the matrix that codes stand for, element by element."""
    codes, scales = np.asarray(matrix.codes, np.float32), np.asarray(matrix.scales)
    O, I = matrix.shape  # noqa: E741
    found = np.zeros((O, I), np.float32)
    for o in range(O):
        for i in range(I):
            code = codes[o // 16, i // 4, o % 16, i % 4] - 128
            found[o, i] = code * scales[o // 16, i // GROUP, o % 16]
    return found


def test_8_bits_stay_near_the_weights_they_stand_for():
    weights = random_weights(CONFIG, "float32", 0)
    matrix, low = weights.layers[0].gate, quantize(weights).layers[0].gate
    np.testing.assert_allclose(np.asarray(plain(low), np.float32), _exact(low), rtol=1e-2)
    error = np.abs(_exact(low) - np.asarray(matrix))
    assert error.max() <= np.abs(matrix).max() / 254 * 1.01
    x, attended = inputs(5)
    want = everything(XlaDense(), weights, x, attended)
    for dense in (XlaDense(), NativeDense(native.load())):
        got = everything(dense, quantize(weights), x, attended)
        for a, b in zip(got, want, strict=True):
            assert np.abs(a - b).max() <= 0.03 * np.abs(b).max()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_a_token_is_computed_alike_in_every_batch(dtype):
    weights = random_weights(CONFIG, "bfloat16" if dtype == "int8" else dtype, 0)
    if dtype == "int8":
        weights = quantize(weights)
    x, attended = inputs(9)
    for isa in isas():
        dense = NativeDense(isa)
        together = everything(dense, weights, x, attended)[3:]
        for t in range(len(x)):
            alone = everything(dense, weights, x[t : t + 1], attended[t : t + 1])[3:]
            for a, b in zip(alone, together, strict=True):
                np.testing.assert_array_equal(a[0], b[t], isa)


def test_native_products_go_with_native_attention():
    tiny, mixtral = load_preset("tiny").config, load_preset("mixtral-8x7b").config
    assert isinstance(select_dense("auto", "cpu_native", tiny, 1), NativeDense)
    assert select_dense("auto", "cpu", tiny, 1) == XlaDense()
    assert select_dense("auto", "cpu_native", mixtral, 1) == XlaDense()
    assert select_dense("auto", "cpu_native", tiny, 2) == XlaDense()
    for attention, config, devices, why in (
        ("cpu", tiny, 1, "goes with attention='cpu_native', got 'cpu'"),
        ("cpu_native", tiny, 2, "one device, got mesh: tensor=2"),
        ("cpu_native", mixtral, 1, "mixtures of experts"),
    ):
        with pytest.raises(UnsupportedBackend, match=f"{why}.*use linear='xla'"):
            select_dense("native", attention, config, devices)
    with pytest.raises(UnsupportedBackend, match="linear='onednn' is not known; allowed: auto"):
        select_dense("onednn", "cpu", tiny, 1)


def generate(prompts, **options):
    with Engine("random:tiny", dtype="float32", page_size=4, max_running=4, **options) as engine:
        results = engine.generate(prompts, {"max_new_tokens": 12, "temperature": 0})
        return [r["output_ids"] for r in results], engine.get_server_info()


def test_an_engine_with_native_products_says_so_and_gives_the_same_tokens():
    prompts = ["one two three four", "one two three five", "other"]
    xla, said = generate(prompts, attention="cpu_native", linear="xla")
    assert said["linear"] == said["config"]["linear"] == "xla"
    ours, said = generate(prompts, attention="cpu_native")
    assert said["linear"] == said["config"]["linear"] == "native"
    assert ours == xla
    assert [generate([p], attention="cpu_native")[0][0] for p in prompts[:1]] == ours[:1]


@pytest.mark.parametrize("attention", ["cpu", "cpu_native"])
def test_an_engine_with_weights_in_8_bits_answers(attention):
    outputs, said = generate(["one", "two"], attention=attention, weights={"type": "int8"})
    assert [len(ids) for ids in outputs] == [12, 12]
    assert said["config"]["weights"] == {"type": "int8"}


def test_experts_in_8_bits_are_refused():
    weights = random_weights(CONFIG, "float32", 0)
    layer = dataclasses.replace(weights.layers[0], router=jax.numpy.zeros((2, 200)))
    with pytest.raises(UnsupportedBackend, match="mixtures of experts; use weights"):
        quantize(dataclasses.replace(weights, layers=(layer,)))


def test_a_call_of_padding_alone_gives_zeros():
    weights = random_weights(CONFIG, "float32", 0)
    x, attended = inputs(3)
    for y in everything(NativeDense(native.load()), weights, x, attended, np.zeros(3, bool)):
        assert not np.any(y)
