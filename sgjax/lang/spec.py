"""The language's part of the YAML: how programs run. Imports typed. See architecture section 8."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from sgjax.errors import ConfigError
from sgjax.typed import FORBID_EXTRA


@dataclass(frozen=True)
class SequentialFork:
    """A program has one request in flight at a time (the paper's "no frontend parallelism").

    Attributes:
        samples_together: members of a fork that generate from the same prompt are asked for
            together, as by a plain API's `n`.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["sequential"] = "sequential"
    samples_together: bool = False


@dataclass(frozen=True)
class ParallelFork:
    """All streams of a program run at once.

    Attributes:
        hint: announce shared prefixes (of forks, of a batch, of a select) before their users.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["parallel"] = "parallel"
    hint: bool = True


ForkSpec = Annotated[SequentialFork | ParallelFork, Field(discriminator="type")]


@dataclass(frozen=True)
class LanguageSpec:
    """How an experiment's programs run.

    Attributes:
        fork: what runs at once within a program.
        programs: how many programs run at once; None runs all of a batch, 1 measures latency.
        num_api_spec_tokens: let generations with a stop run so many tokens past it, and answer
            later ones from what was written; None does not.
    """

    __pydantic_config__ = FORBID_EXTRA
    fork: ForkSpec = field(default_factory=ParallelFork)
    programs: int | None = None
    num_api_spec_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("programs", "num_api_spec_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} is not allowed; it must be at least 1")
