"""The mixture-of-experts MLP: grouped products against every expert, and against the formula."""

import jax
import numpy as np
import pytest

from sgjax.errors import ConfigError, ModelLoadError
from sgjax.models import moe
from sgjax.models.config import ModelConfig
from sgjax.models.presets import load_preset
from tests.golden import variations

T, E, F, X, Y = 7, 12, 20, 5, 2


def arrays():
    rng = np.random.default_rng(0)
    shapes = ((T, E), (X, E), (X, E, F), (X, E, F), (X, F, E))
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def by_hand(x, router, gate, up, down):
    """Token by token, expert by expert, in float64."""
    out = np.zeros((T, E))
    for t in range(T):
        probs = np.exp(router.astype(np.float64) @ x[t])
        best = np.argsort(-probs)[:Y]
        for i in best:
            h = x[t] @ gate[i]
            y = (h / (1 + np.exp(-h)) * (x[t] @ up[i])) @ down[i]
            out[t] += probs[i] / probs[best].sum() * y
    return out


def test_the_mixture_is_the_formula():
    x, router, gate, up, down = arrays()
    got = moe.moe(x, router, gate, up, down, Y)
    np.testing.assert_allclose(got, by_hand(x, router, gate, up, down), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("crowded", [False, True])
def test_grouped_products_equal_every_expert_even_where_one_gets_all(crowded):
    x, _, gate, up, down = arrays()
    rng = np.random.default_rng(1)
    experts = np.stack([rng.permutation(X)[:Y] for _ in range(T)])
    if crowded:
        experts[:] = [3, 1]
    weights = rng.random((T, Y)).astype(np.float32)
    a, b = (
        jax.jit(f)(x, experts, weights, gate, up, down) for f in (moe.grouped, moe.every_expert)
    )
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_mixtral_8x7b_has_its_47_billion_parameters_and_checkpoints_are_understood():
    assert round(load_preset("mixtral-8x7b").config.param_count / 1e9, 1) == 46.7
    config = ModelConfig.from_hf(variations.CONFIGS["mixtral"])
    assert (config.num_experts, config.experts_per_token) == (4, 2)
    with pytest.raises(ModelLoadError, match="num_local_experts"):
        ModelConfig.from_hf(
            variations.CONFIGS["mistral"]
            | {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}
        )
    with pytest.raises((ConfigError, ModelLoadError), match="experts_per_token=9"):
        ModelConfig.from_hf(variations.CONFIGS["mixtral"] | {"num_experts_per_tok": 9})
