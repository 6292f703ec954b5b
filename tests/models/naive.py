"""The Llama forward pass in plain numpy float64, one sequence, no cache: the tests' oracle."""

import numpy as np

from sgjax.models.config import ModelConfig
from sgjax.models.layer import LlamaWeights
from tests.kernels.ragged import dense_attention


def frequencies(config: ModelConfig) -> np.ndarray:
    """Transcribed from the formulas in the Llama 3.1 and position-interpolation papers."""
    D, scaling = config.head_dim, config.rope_scaling
    out = []
    for i in range(D // 2):
        freq = 1.0 / config.rope_theta ** (2 * i / D)
        if scaling.type == "linear":
            freq /= scaling.factor
        if scaling.type == "llama3":
            wavelength = 2 * np.pi / freq
            original = scaling.original_max_position
            if wavelength > original / scaling.low_freq_factor:
                freq /= scaling.factor
            elif wavelength >= original / scaling.high_freq_factor:
                smooth = (original / wavelength - scaling.low_freq_factor) / (
                    scaling.high_freq_factor - scaling.low_freq_factor
                )
                freq = (1 - smooth) * freq / scaling.factor + smooth * freq
        out.append(freq)
    return np.array(out)


def rotate(x: np.ndarray, freq: np.ndarray) -> np.ndarray:
    """Multiply x[t, h, i] + j x[t, h, i + D/2] by exp(j t freq[i])."""
    half = x.shape[-1] // 2
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(
        1j * np.arange(len(x))[:, None, None] * freq
    )
    return np.concatenate([turned.real, turned.imag], axis=-1)


def logits(config: ModelConfig, weights: LlamaWeights, tokens: list[int]) -> np.ndarray:
    """Return the logits [n, V] after each token."""

    def w(x):
        return np.asarray(x, np.float64)

    def norm(x, scale):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + config.norm_eps) * w(scale)

    def project(x, weight, bias):
        y = x @ w(weight).T
        return y if bias is None else y + w(bias)

    n, D, freq = len(tokens), config.head_dim, frequencies(config)
    x = w(weights.embed)[tokens]
    for layer in weights.layers:
        h = norm(x, layer.attn_norm)
        q = project(h, layer.q, layer.q_bias).reshape(n, -1, D)
        k = project(h, layer.k, layer.k_bias).reshape(n, -1, D)
        v = project(h, layer.v, layer.v_bias).reshape(n, -1, D)
        attended = dense_attention(rotate(q, freq), rotate(k, freq), v, 0)
        x = x + attended.reshape(n, -1) @ w(layer.o).T
        h = norm(x, layer.mlp_norm)
        gate, up = h @ w(layer.gate).T, h @ w(layer.up).T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w(layer.down).T
    head = weights.embed if weights.head is None else weights.head
    return norm(x, weights.norm) @ w(head).T
