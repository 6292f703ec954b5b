"""Models from GGUF files: config from metadata, tensors under their Hugging Face names.

DEVICE. Imports models.config, models.weights, models.gguf_file, errors.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgjax.errors import ConfigError, ModelLoadError
from sgjax.models.config import LinearScaling, Llama3Scaling, ModelConfig, NoScaling
from sgjax.models.gguf_file import GgufFile
from sgjax.models.llama import rope_frequencies

_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_ROPE_FACTORS = "rope_freqs.weight"


def config_from_gguf(file: GgufFile) -> ModelConfig:
    """Translate a file's metadata.

    Raises:
        ModelLoadError: the architecture, or something the file asks for, is not supported; or a key
            is missing.
    """
    metadata = file.metadata
    architecture = metadata.get("general.architecture")
    if architecture not in ("llama", "qwen2"):
        raise ModelLoadError(
            f"{file.path}: architecture {architecture!r} is not supported; supported are 'llama' "
            "(also Mistral, Vicuna, SmolLM2) and 'qwen2'"
        )
    keys = _Keys(file, architecture)
    if keys.integer("expert_count", 0):
        raise ModelLoadError(
            f"{file.path}: a mixture of {keys.integer('expert_count')} experts; only dense models "
            "are read from GGUF"
        )
    heads, hidden = keys.integer("attention.head_count"), keys.integer("embedding_length")
    head_dim = keys.integer("attention.key_length", hidden // max(heads, 1))
    rotated = keys.integer("rope.dimension_count", head_dim)
    if rotated != head_dim:
        raise ModelLoadError(
            f"{file.path}: {rotated} of {head_dim} dimensions of a head are rotated; only full "
            "rotation is supported"
        )
    try:
        plain = ModelConfig(
            architecture=architecture,
            vocab_size=file.tensors["token_embd.weight"].shape[0],
            hidden_size=hidden,
            num_layers=keys.integer("block_count"),
            num_heads=heads,
            num_kv_heads=keys.integer("attention.head_count_kv", heads),
            head_dim=head_dim,
            ffn_size=keys.integer("feed_forward_length"),
            max_position=keys.integer("context_length"),
            rope_theta=keys.decimal("rope.freq_base", 10000.0),
            rope_scaling=_scaling(keys),
            norm_eps=keys.decimal("attention.layer_norm_rms_epsilon"),
            tie_embeddings="output.weight" not in file.tensors,
            qkv_bias="blk.0.attn_q.bias" in file.tensors,
            sliding_window=keys.integer("attention.sliding_window", 0) or None,
        )
    except KeyError as error:
        raise ModelLoadError(f"{file.path} has no tensor {error}; download it again") from None
    except ConfigError as error:
        raise ModelLoadError(f"{file.path}: {error}") from None
    if _ROPE_FACTORS in file.tensors:
        return _with_llama3_scaling(plain, file)
    return plain


def tensor_reader(file: GgufFile, config: ModelConfig) -> Callable[[str], NDArray[np.float32]]:
    """Return a function from Hugging Face tensor names to arrays.

    For the `llama` architecture, GGUF stores the rows of q and k so that rotary pairs are
    neighbours; the reader puts them back to (i, i + D/2).
    """

    def read(name: str) -> NDArray[np.float32]:
        values = file.read(gguf_name(name))
        if config.architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
            heads = config.num_heads if ".q_proj." in name else config.num_kv_heads
            pairs = values.reshape(heads, -1, 2, *values.shape[1:])
            return pairs.swapaxes(1, 2).reshape(values.shape)
        return values

    return read


def gguf_name(name: str) -> str:
    """Return the GGUF name of a tensor.

    Raises:
        ModelLoadError: the name belongs to no tensor of the Llama family.
    """
    if name in _NAMES:
        return _NAMES[name]
    match = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)", name)
    if match is None or match[2] not in _LAYER_NAMES:
        raise ModelLoadError(f"no GGUF name is known for tensor {name!r}")
    return f"blk.{match[1]}.{_LAYER_NAMES[match[2]]}.{match[3]}"


class _Keys:
    """An architecture's metadata keys, checked as they are read."""

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self._file = file
        self._architecture = architecture

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a whole number; without a default the key must be there."""
        return int(self._value(name, int, default))

    def decimal(self, name: str, default: float | None = None) -> float:
        """Return the shortest decimal of a 32-bit float (1e-5, not 9.99999974e-06)."""
        return float(str(np.float32(self._value(name, float, default))))

    def text(self, name: str, default: str) -> str:
        """Return a string."""
        return str(self._value(name, str, default))

    def _value(self, name: str, kind: type, default: Any) -> Any:
        key = f"{self._architecture}.{name}"
        value = self._file.metadata.get(key, default)
        if value is None:
            raise ModelLoadError(
                f"{self._file.path} has no {key}; it is a vocabulary or an adapter rather than a "
                "model: give the model's file"
            )
        if not isinstance(value, kind):
            raise ModelLoadError(
                f"{self._file.path}: {key} is {value!r}, but one {kind.__name__} for all layers is "
                "supported"
            )
        return value


def _scaling(keys: _Keys) -> NoScaling | LinearScaling:
    kind = keys.text("rope.scaling.type", "none")
    factor = keys.decimal("rope.scaling.factor", keys.decimal("rope.scale_linear", 1.0))
    if kind not in ("none", "linear"):
        raise ModelLoadError(
            f"rope scaling {kind!r} is not supported in GGUF files; supported are 'none' and "
            "'linear', and Llama-3.1's factors"
        )
    return NoScaling() if factor == 1.0 else LinearScaling(factor)


def _with_llama3_scaling(config: ModelConfig, file: GgufFile) -> ModelConfig:
    """Recover Llama-3.1's scaling from the divisors of the frequencies, which is all GGUF keeps.

    All releases share the other three constants; whether they are those is checked.
    """
    divisors = file.read(_ROPE_FACTORS)
    scaling = Llama3Scaling(float(divisors.max()), 1.0, 4.0, 8192)
    scaled = dataclasses.replace(config, rope_scaling=scaling)
    expected = rope_frequencies(config) / rope_frequencies(scaled)
    if divisors.shape != expected.shape or not np.allclose(divisors, expected, rtol=1e-3):
        raise ModelLoadError(
            f"{file.path}: its {_ROPE_FACTORS} are not those of Llama-3.1's rope scaling; other "
            "scalings are not supported in GGUF files"
        )
    return scaled
