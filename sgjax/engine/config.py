"""EngineConfig: what `sgl.Engine` takes from a YAML file, a dict or keywords.

HOST, no jax. Imports typed and the specs of the layers below.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from sgjax.cache import CacheSpec, EvictionSpec, LruSpec, TreeSpec
from sgjax.errors import ConfigError
from sgjax.fsm.spec import GrammarSpec
from sgjax.schedule import (
    AdmissionSpec,
    CompositionSpec,
    GrowthSpec,
    PolicySpec,
    SiblingsSpec,
)
from sgjax.schedule.spec import DeferSpec, InOrderSpec, LpmSpec, MixedSpec
from sgjax.sim.build import SimSpec
from sgjax.typed import FORBID_EXTRA, load_yaml, validate

BLOCK_TOKENS = 16
"""Smallest query block: the grain in which extends are charged to the token budget."""


@dataclass(frozen=True)
class JaxSpec:
    """Steps run on JAX's default device."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["jax"] = "jax"


ExecutorSpec = Annotated[JaxSpec | SimSpec, Field(discriminator="type")]


@dataclass(frozen=True)
class PlainSpec:
    """Every sequence attends to its whole context by itself."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["none"] = "none"


@dataclass(frozen=True)
class CascadeSpec:
    """What tree nodes hold for several sequences of a step is attended once for all of them.

    Attributes:
        min_tokens: shorter runs are left to the sequences: merging would cost more.
        min_queries: so are runs of fewer tokens to compute; by default as many as pay for the
            backend of attention, where `shared_prefix` is not given.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["cascade"] = "cascade"
    min_tokens: int = 64
    min_queries: int = 2

    def __post_init__(self) -> None:
        if self.min_tokens < 1:
            raise ConfigError(f"min_tokens={self.min_tokens} is not allowed; it must be >= 1")
        if self.min_queries < 2:
            raise ConfigError(f"min_queries={self.min_queries} is not allowed; it must be >= 2")


SharedPrefixSpec = Annotated[PlainSpec | CascadeSpec, Field(discriminator="type")]


@dataclass(frozen=True)
class StoredSpec:
    """Weights of the engine's dtype."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["stored"] = "stored"


@dataclass(frozen=True)
class Int8Spec:
    """Matrices are rounded to 8 bits when they are loaded, with a scale for 64 columns of a row."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["int8"] = "int8"


WeightsSpec = Annotated[StoredSpec | Int8Spec, Field(discriminator="type")]


@dataclass(frozen=True)
class MeshSpec:
    """Over which devices the model is split.

    Attributes:
        tensor: devices that share every layer (Megatron's split); 1 uses the default device.
    """

    __pydantic_config__ = FORBID_EXTRA
    tensor: int = 1

    def __post_init__(self) -> None:
        if self.tensor < 1:
            raise ConfigError(f"mesh: tensor={self.tensor} is not allowed; it must be >= 1")


@dataclass(frozen=True)
class EngineConfig:
    """The engine's configuration.

    Attributes:
        model: preset, folder, .gguf file or `random:<preset>`.
        dtype: of weights and activations.
        kv_dtype: of keys and values; None takes `dtype`.
        page_size: S, tokens a page of K/V holds.
        kv_tokens: tokens the K/V pool holds, rounded up to whole pages; None takes what fits.
        max_context_len: tokens of one sequence, prompt and output; None takes the model's.
        max_running: sequences that run at once.
        token_budget: new tokens a step, at least BLOCK_TOKENS.
        cache: the prefix cache.
        eviction: which cached prefix goes first.
        policy: the order of admission.
        siblings: what to do about a prefix that is being computed.
        composition: what a step is made of: decodes and chunks of prompts together, or one kind.
        admission: whether a request that does not fit holds up those behind it.
        growth: how much room admission leaves for the outputs of those who run.
        executor: what runs the steps: JAX on a device, or a simulated device.
        grammar: how constraints are compiled and applied.
        mesh: devices the model is split over.
        weights: how matrices are kept and multiplied.
        attention: backend of attention; "auto" takes the platform's own, on a CPU "cpu_native"
            where a C++ compiler is.
        linear: backend of the products with weights; "auto" takes "native" beside attention
            "cpu_native" where the model allows it, else "xla".
        shared_prefix: whether a step attends once to the pages that its sequences share; None does
            where the backend of attention can.
        seed: of sampling where a request has none, and of random weights.
        warmup: "lazy" compiles a step's shape when it first occurs, "full" all of them at start.
        debug_checks: verify the page invariant after every step.
    """

    __pydantic_config__ = FORBID_EXTRA

    model: str = "smollm2-135m"
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    kv_dtype: Literal["bfloat16", "float32"] | None = None
    page_size: int = 1
    kv_tokens: int | None = None
    max_context_len: int | None = None
    max_running: int = 64
    token_budget: int = 1024
    cache: CacheSpec = field(default_factory=TreeSpec)
    eviction: EvictionSpec = field(default_factory=LruSpec)
    policy: PolicySpec = field(default_factory=LpmSpec)
    siblings: SiblingsSpec = field(default_factory=DeferSpec)
    composition: CompositionSpec = field(default_factory=MixedSpec)
    admission: AdmissionSpec = field(default_factory=InOrderSpec)
    growth: GrowthSpec = field(default_factory=GrowthSpec)
    executor: ExecutorSpec = field(default_factory=JaxSpec)
    grammar: GrammarSpec = field(default_factory=GrammarSpec)
    mesh: MeshSpec = field(default_factory=MeshSpec)
    weights: WeightsSpec = field(default_factory=StoredSpec)
    attention: str = "auto"
    linear: str = "auto"
    shared_prefix: SharedPrefixSpec | None = None
    seed: int = 0
    warmup: Literal["lazy", "full"] = "lazy"
    debug_checks: bool = False

    def __post_init__(self) -> None:
        for name in ("page_size", "kv_tokens", "max_context_len", "max_running", "token_budget"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} is not allowed; it must be at least 1")
        if self.token_budget < BLOCK_TOKENS:
            raise ConfigError(
                f"token_budget={self.token_budget} is not allowed; an extend takes blocks of "
                f"{BLOCK_TOKENS} tokens, so it must be at least {BLOCK_TOKENS}"
            )
        if self.seed < 0:
            raise ConfigError(f"seed={self.seed} is not allowed; it must be at least 0")


def resolve(
    config: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, Any]
) -> EngineConfig:
    """Return the configuration that a file or dict and keywords make together.

    Args:
        config: a YAML file, a mapping, or None.
        overrides: keys that win over `config`.

    Raises:
        ConfigError: unreadable file, unknown key, value out of range.
    """
    if isinstance(config, str | Path):
        where, data = str(config), load_yaml(Path(config))
    else:
        where, data = "engine config", config
    if data is not None and not isinstance(data, Mapping):
        raise ConfigError(f"{where}: got {type(data).__name__}, a mapping of keys is needed")
    return validate(EngineConfig, {**(data or {}), **overrides}, where)
