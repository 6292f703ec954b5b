"""ModelConfig: the shape of a model, from a preset or from a checkpoint's config.json.

HOST. Imports errors and pydantic's field helpers, never jax: the simulator and the command line
read configs too. Presets in configs/models are validated into `ModelConfig` by `typed.validate`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from sgjax.errors import ConfigError, ModelLoadError
from sgjax.typed import FORBID_EXTRA

DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
"""Bytes an element takes, for the dtypes weights and K/V may have."""


@dataclass(frozen=True)
class NoScaling:
    """Plain rotary position embedding."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["none"] = "none"


@dataclass(frozen=True)
class LinearScaling:
    """Position interpolation: all frequencies divided by `factor`."""

    __pydantic_config__ = FORBID_EXTRA
    factor: float
    type: Literal["linear"] = "linear"


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama-3.1's scaling: low frequencies divided by `factor`, high ones kept, a ramp between.

    Attributes:
        factor: by which frequencies of long wavelength are divided.
        low_freq_factor: wavelengths above original_max_position / this are scaled in full.
        high_freq_factor: wavelengths below original_max_position / this are kept.
        original_max_position: context length of pretraining, in tokens.
    """

    __pydantic_config__ = FORBID_EXTRA
    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int
    type: Literal["llama3"] = "llama3"


RopeScaling = Annotated[NoScaling | LinearScaling | Llama3Scaling, Field(discriminator="type")]


@dataclass(frozen=True)
class ModelConfig:
    """Everything about a model that is not a weight; hashable, so that jit can key on it.

    Attributes:
        architecture: the checkpoint's family; all share one forward pass.
        vocab_size: V, rows of the embedding (may exceed the tokenizer's ids).
        hidden_size: E.
        num_layers: L.
        num_heads: H query heads.
        num_kv_heads: K; H is a multiple of it.
        head_dim: D, even.
        ffn_size: F, inner width of the gated MLP (of one expert).
        max_position: context length in tokens.
        rope_theta: base of the rotary frequencies.
        rope_scaling: how they are stretched to longer contexts.
        norm_eps: epsilon of RMSNorm.
        tie_embeddings: the output head is the embedding.
        qkv_bias: q, k and v projections have biases (Qwen2).
        sliding_window: attention span in tokens; sequences beyond it are refused. None: no limit.
        num_experts: experts of each MLP; 0 is a dense MLP.
        experts_per_token: experts each token is routed to.
    """

    __pydantic_config__ = FORBID_EXTRA
    architecture: Literal["llama", "mistral", "mixtral", "qwen2"]
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    max_position: int
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling = field(default_factory=NoScaling)
    norm_eps: float = 1e-6
    tie_embeddings: bool = False
    qkv_bias: bool = False
    sliding_window: int | None = None
    num_experts: int = 0
    experts_per_token: int = 0

    def __post_init__(self) -> None:
        positive = (
            "vocab_size", "hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
            "ffn_size", "max_position", "rope_theta", "norm_eps",
        )  # fmt: skip
        for name in positive:
            if getattr(self, name) <= 0:
                raise ConfigError(f"model config: {name}={getattr(self, name)}; it must be > 0")
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"model config: num_heads={self.num_heads} is no multiple of "
                f"num_kv_heads={self.num_kv_heads}"
            )
        if self.head_dim % 2:
            raise ConfigError(
                f"model config: head_dim={self.head_dim}; rotary embedding needs an even one"
            )
        if not 0 <= self.experts_per_token <= self.num_experts or (
            self.num_experts and not self.experts_per_token
        ):
            raise ConfigError(
                f"model config: experts_per_token={self.experts_per_token} of "
                f"num_experts={self.num_experts}; 1 to num_experts are needed, 0 of 0 is dense"
            )

    @property
    def q_size(self) -> int:
        """Return H * D, the width of all query heads."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Return K * D, the width of all key (or value) heads."""
        return self.num_kv_heads * self.head_dim

    @property
    def param_count(self) -> int:
        """Return the number of weights; a tied head counts once."""
        E = self.hidden_size
        attention = E * (2 * self.q_size + 2 * self.kv_size)
        bias = (self.q_size + 2 * self.kv_size) if self.qkv_bias else 0
        mlp = 3 * E * self.ffn_size * max(1, self.num_experts) + E * self.num_experts
        embeddings = self.vocab_size * E * (1 if self.tie_embeddings else 2)
        return embeddings + self.num_layers * (attention + bias + mlp + 2 * E) + E

    def kv_bytes_per_token(self, dtype: str) -> int:
        """Return the bytes of K and V of one token over all layers, without a pool's padding.

        Args:
            dtype: "float32" or "bfloat16".

        Raises:
            ConfigError: another dtype.
        """
        if dtype not in DTYPE_BYTES:
            raise ConfigError(f"kv dtype {dtype!r} is not supported; allowed: {list(DTYPE_BYTES)}")
        return 2 * self.num_layers * self.kv_size * DTYPE_BYTES[dtype]

    @classmethod
    def from_hf(cls, data: Mapping[str, Any]) -> "ModelConfig":
        """Translate a Hugging Face config.json.

        Args:
            data: the parsed file.

        Returns:
            The config; defaults for absent keys are those of transformers.

        Raises:
            ModelLoadError: a key is missing or of the wrong kind, or the file asks for something
                this forward pass does not do; the message names it.
        """
        family = _family(data)
        _refuse_unsupported(data, family)
        try:
            hidden, heads = data["hidden_size"], data["num_attention_heads"]
            rope = data.get("rope_parameters") or {}
            return cls(
                architecture=family,
                vocab_size=data["vocab_size"],
                hidden_size=hidden,
                num_layers=data["num_hidden_layers"],
                num_heads=heads,
                num_kv_heads=data.get("num_key_value_heads")
                or (heads if family == "llama" else data["num_key_value_heads"]),
                head_dim=data.get("head_dim") or hidden // heads,
                ffn_size=data["intermediate_size"],
                max_position=data["max_position_embeddings"],
                rope_theta=float(rope.get("rope_theta") or data.get("rope_theta") or 10000.0),
                rope_scaling=_rope_scaling(data),
                norm_eps=float(data.get("rms_norm_eps", 1e-6)),
                tie_embeddings=bool(data.get("tie_word_embeddings", False)),
                qkv_bias=family == "qwen2",
                sliding_window=_sliding_window(data, family),
                num_experts=data["num_local_experts"] if family == "mixtral" else 0,
                experts_per_token=data["num_experts_per_tok"] if family == "mixtral" else 0,
            )
        except KeyError as error:
            raise ModelLoadError(
                f"config.json has no key {error}; is it the config of a {family} checkpoint?"
            ) from None
        except (ConfigError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise ModelLoadError(f"config.json cannot be used: {error}") from None


Family = Literal["llama", "mistral", "mixtral", "qwen2"]
_CLASSES: dict[str, Family] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Qwen2ForCausalLM": "qwen2",
}
_TYPES: dict[str, Family] = {name: name for name in ("llama", "mistral", "mixtral", "qwen2")}

# Keys whose presence with any other value changes the arithmetic in a way we do not implement.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "mlp_bias": (False,),
    "partial_rotary_factor": (1, 1.0),
    "quantization_config": (None,),
    "final_logit_softcapping": (None,),
    "attn_logit_softcapping": (None,),
    "logit_scale": (None, 1, 1.0),
}


def _family(data: Mapping[str, Any]) -> Family:
    names = data.get("architectures") or []
    if names:
        if names[0] in _CLASSES:
            return _CLASSES[names[0]]
        raise ModelLoadError(
            f"architecture {names[0]!r} is not supported; allowed: {', '.join(_CLASSES)}"
        )
    if data.get("model_type") in _TYPES:
        return _TYPES[data["model_type"]]
    raise ModelLoadError(
        f"config.json names no supported architecture (model_type={data.get('model_type')!r}); "
        f"allowed: {', '.join(_CLASSES)}"
    )


def _refuse_unsupported(data: Mapping[str, Any], family: Family) -> None:
    for key, allowed in _NEUTRAL.items():
        if key in data and data[key] not in allowed:
            raise ModelLoadError(
                f"config.json has {key}={data[key]!r}, which is not supported; "
                f"only {' or '.join(repr(v) for v in allowed)}"
            )
    # Qwen2 states the biases it always has; Llama's flag would also put one on the output.
    if family != "qwen2" and data.get("attention_bias"):
        raise ModelLoadError("config.json has attention_bias=True, which is not supported")


def _rope_scaling(data: Mapping[str, Any]) -> NoScaling | LinearScaling | Llama3Scaling:
    rope = data.get("rope_scaling") or data.get("rope_parameters")
    if not rope:
        return NoScaling()
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return NoScaling()
    if kind == "linear":
        return LinearScaling(factor=float(rope["factor"]))
    if kind == "llama3":
        return Llama3Scaling(
            factor=float(rope["factor"]),
            low_freq_factor=float(rope["low_freq_factor"]),
            high_freq_factor=float(rope["high_freq_factor"]),
            original_max_position=int(rope["original_max_position_embeddings"]),
        )
    raise ModelLoadError(
        f"rope scaling {kind!r} is not supported; allowed: default, linear, llama3"
    )


def _sliding_window(data: Mapping[str, Any], family: Family) -> int | None:
    # Qwen2 carries a window that only `use_sliding_window` switches on.
    if family == "qwen2" and not data.get("use_sliding_window", False):
        return None
    window = data.get("sliding_window")
    return int(window) if window else None
