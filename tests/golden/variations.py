"""The tiny architectures whose logits are committed, and their weights from a seed.

Imports numpy only: used by the script that makes the goldens with torch, and by the tests.
"""

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_TOKENS = 48

BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    # Short enough that all three ranges of wavelengths occur among 8 frequencies.
    "original_max_position_embeddings": 32,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "gqa": BASE,
    "mqa": BASE | {"num_key_value_heads": 1},
    "mha": BASE | {"num_key_value_heads": 4},
    "wide_heads": BASE | {"head_dim": 32},
    "tied": BASE | {"tie_word_embeddings": True},
    "long_theta": BASE | {"rope_theta": 500000.0, "rms_norm_eps": 1e-6},
    "linear_rope": BASE | {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama3_rope": BASE | {"rope_scaling": LLAMA3_ROPE},
    "mistral": BASE
    | {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": None},
    "mixtral": BASE
    | {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "sliding_window": None,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "qwen2": BASE | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "qwen2_tied": BASE
    | {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "tie_word_embeddings": True,
        "rope_theta": 1000000.0,
    },
}
"""Contents of config.json, by name."""


def tokens(name: str) -> NDArray[np.int64]:
    """Return the prompt of a variation."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return rng.integers(0, BASE["vocab_size"], NUM_TOKENS)


def tensor(config: str, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return a weight: matrices N(0, 1.5 / in), norms around 1, biases around 0."""
    rng = np.random.default_rng(zlib.crc32(f"{config}/{name}".encode()))
    noise = rng.standard_normal(shape, np.float32)
    if len(shape) == 2:
        return noise * np.float32((1.5 / shape[1]) ** 0.5)
    return np.float32(name.endswith("norm.weight")) + np.float32(0.3) * noise


SMOLLM2_LENGTHS = (1, 7, 300, 1500)
"""Prompt lengths for SmolLM2, in tokens."""


def smollm2_positions(length: int) -> list[int]:
    """Return the positions of a prompt whose logits are kept."""
    return sorted({0, length // 3, 2 * length // 3, length - 1})


def projection(vocab_size: int) -> NDArray[np.float32]:
    """Return f32[V, 32] random signs / sqrt(V): a summary in which every id has a say."""
    signs = np.random.default_rng(0).integers(0, 2, (vocab_size, 32)) * 2 - 1
    return (signs / np.sqrt(vocab_size)).astype(np.float32)
