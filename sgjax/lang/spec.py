"""The language's part of the YAML: how forks run. Imports typed. See architecture section 8."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from sgjax.typed import FORBID_EXTRA


@dataclass(frozen=True)
class SequentialFork:
    """A program has one request in flight at a time (the paper's "no frontend parallelism")."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["sequential"] = "sequential"


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
