"""What YAML says of constrained decoding: `grammar:` of the engine (architecture section 8).

HOST. Imports typed and its neighbours.
"""

import importlib.util
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.fsm.jump import JumpMode, NoJump, PlainString, Retokenize, StableTokens
from sgjax.fsm.kernels import Budget
from sgjax.fsm.native import KernelChoice
from sgjax.fsm.vocabulary import Level
from sgjax.tokens.base import Tokenizer
from sgjax.typed import FORBID_EXTRA


@dataclass(frozen=True)
class NoJumpSpec:
    """Every token is sampled."""

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["none"] = "none"


@dataclass(frozen=True)
class RetokenizeSpec:
    """The paper's: the text is encoded anew after each jump."""

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["retokenize"] = "retokenize"


@dataclass(frozen=True)
class TokensSpec:
    """Jump to the last token boundary that no continuation can change.

    Attributes:
        guess: compute the forced text that is held back in the same pass, as a guess.
    """

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["tokens"] = "tokens"
    guess: bool = True


@dataclass(frozen=True)
class StringSpec:
    """Encode forced text alone; for study."""

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["string"] = "string"


@dataclass(frozen=True)
class AllMaskSpec:
    """Every tokenisation of the language's texts is allowed."""

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["all"] = "all"


@dataclass(frozen=True)
class CanonicalMaskSpec:
    """Only what the tokenizer itself would write is allowed."""

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["canonical"] = "canonical"


@dataclass(frozen=True)
class LocalSamplerSpec:
    """Mask the logits, renormalise what is left, draw a token: what every masking engine does."""

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["local"] = "local"


@dataclass(frozen=True)
class ExactSamplerSpec:
    """Draw whole outputs from the model's distribution, conditioned on the language.

    Attributes:
        max_strings: a language of so many texts at most is enumerated.
        candidates: outputs that are drawn locally and resampled where it is larger.
    """

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA
    type: Literal["exact"] = "exact"
    max_strings: int = 256
    candidates: int = 32

    def __post_init__(self) -> None:
        for name in ("max_strings", "candidates"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"grammar.sampler.{name}={getattr(self, name)} must be at least 1"
                )


JumpSpec = Annotated[
    NoJumpSpec | RetokenizeSpec | TokensSpec | StringSpec, Field(discriminator="type")
]
MaskSpec = Annotated[AllMaskSpec | CanonicalMaskSpec, Field(discriminator="type")]

SamplerSpec = Annotated[LocalSamplerSpec | ExactSamplerSpec, Field(discriminator="type")]


@dataclass(frozen=True)
class GrammarSpec:
    """How constraints are compiled and applied.

    Attributes:
        jump: what happens where text is forced.
        mask: which tokenisations are allowed.
        sampler: `local` draws token by token, `exact` whole outputs.
        level: `byte`, or `char` for the paper's automaton over characters.
        unicode: `\\w`, `\\d`, `\\s` and case are Unicode's; else ASCII's, as in the paper.
        reuse: compile each constraint once; else for each request.
        whitespace: of JSON: `compact` (none), `fixed` (one space behind comma and colon) or
            `bounded` (up to `max_whitespace` characters at each place where JSON allows some).
        max_whitespace: see there.
        extra_properties: JSON objects may hold properties beyond those that the schema lists, where
            it allows them; without, they are simply not generated.
        guided: JSON schemas beyond our own subset go through llguidance (extra `grammar`).
        kernels: `c`, `numpy`, or `auto` for `c` where there is a compiler.
        max_states, max_compile_s, max_bytes: what compiling one constraint may take.
        table_bytes: of the masks on the device.
    """

    __pydantic_config__: ClassVar[ConfigDict] = FORBID_EXTRA

    jump: JumpSpec = field(default_factory=TokensSpec)
    mask: MaskSpec = field(default_factory=AllMaskSpec)
    sampler: SamplerSpec = field(default_factory=LocalSamplerSpec)
    level: Level = "byte"
    unicode: bool = False
    reuse: bool = True
    whitespace: Literal["compact", "fixed", "bounded"] = "bounded"
    max_whitespace: int = 2
    extra_properties: bool = False
    guided: bool = False
    kernels: KernelChoice = "auto"
    max_states: int = 200_000
    max_compile_s: float = 20.0
    max_bytes: int = 256 << 20
    table_bytes: int = 32 << 20

    def __post_init__(self) -> None:
        for name in ("max_states", "max_compile_s", "max_bytes", "table_bytes"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"grammar.{name}={getattr(self, name)} must be above 0")
        if not 0 <= self.max_whitespace <= 64:
            raise ConfigError(
                f"grammar.max_whitespace={self.max_whitespace} must be between 0 and 64"
            )
        if self.guided and importlib.util.find_spec("llguidance") is None:
            raise UnsupportedBackend(
                "grammar.guided needs the package llguidance; install sgjax[grammar] or drop it"
            )

    @property
    def budget(self) -> Budget:
        """Return what compiling one constraint may take."""
        return Budget(self.max_states, self.max_compile_s, self.max_bytes)


def build_jump(spec: JumpSpec, tokenizer: Tokenizer) -> JumpMode:
    """Build the jump mode that a configuration describes."""
    match spec:
        case NoJumpSpec():
            return NoJump()
        case RetokenizeSpec():
            return Retokenize(tokenizer)
        case TokensSpec(guess=guess):
            return StableTokens(tokenizer, guess)
        case StringSpec():
            return PlainString(tokenizer)
