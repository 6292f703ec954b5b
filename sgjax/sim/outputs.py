"""What the simulated model says, and when it stops: output lengths and tokens.

HOST. Imports schedule, tokens and typed. Lengths come from a seeded distribution. They and the
tokens depend on the prompt alone (on the sample's seed too, where one samples), never on when or
beside whom a request runs, so that all variants of an experiment do the same work. Lengths known
from data are set by `max_new_tokens` with `ignore_eos`.
"""

import math
import statistics
import zlib
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from sgjax.errors import ConfigError
from sgjax.schedule import Sequence
from sgjax.schedule.policies import mix
from sgjax.sim.executor import Script
from sgjax.tokens.base import Tokenizer
from sgjax.typed import FORBID_EXTRA

_SAMPLE = "the quick brown fox jumps over the lazy dog and runs on to where the river bends"


@dataclass(frozen=True)
class FullLengths:
    """Every output runs to its `max_new_tokens`."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["full"] = "full"


@dataclass(frozen=True)
class UniformLengths:
    """Output lengths are uniform in [low, high] tokens."""

    __pydantic_config__ = FORBID_EXTRA
    low: int
    high: int
    type: Literal["uniform"] = "uniform"

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high:
            raise ConfigError(f"low={self.low}, high={self.high}: 1 <= low <= high is needed")


@dataclass(frozen=True)
class LognormalLengths:
    """Output lengths are log-normal: `median` tokens, and `sigma` of their natural logarithm."""

    __pydantic_config__ = FORBID_EXTRA
    median: float
    sigma: float
    type: Literal["lognormal"] = "lognormal"

    def __post_init__(self) -> None:
        if self.median < 1 or self.sigma < 0:
            raise ConfigError(f"median={self.median}, sigma={self.sigma}: >= 1 and >= 0 are needed")


Lengths = Annotated[FullLengths | UniformLengths | LognormalLengths, Field(discriminator="type")]


def draw(lengths: Lengths, u: float) -> int | None:
    """Return the length at quantile u in (0, 1), at least 1; None runs to the limit."""
    match lengths:
        case FullLengths():
            return None
        case UniformLengths(low=low, high=high):
            return low + int(u * (high - low + 1))
        case LognormalLengths(median=median, sigma=sigma):
            return max(1, round(median * math.exp(sigma * statistics.NormalDist().inv_cdf(u))))


def speak(tokenizer: Tokenizer, lengths: Lengths, seed: int) -> Script:
    """Return a script of plain words that ends an output at its drawn length.

    Args:
        tokenizer: the words' tokens and the end id are its own.
        lengths: how long outputs are.
        seed: of the lengths.
    """
    # The first word has no space before it: in the middle of a text it would merge with the last.
    alphabet = sorted(set(tokenizer.encode(_SAMPLE)[1:]) - tokenizer.special_ids)

    def script(seq: Sequence) -> int:
        if seq.end_ids and seq.num_output + 1 == target(seq):
            return min(seq.end_ids)
        return alphabet[mix(own_seed(seq), _digest(seq, seq.num_tokens)) % len(alphabet)]

    def target(seq: Sequence) -> int | None:
        at_prompt = _digest(seq, seq.num_prompt)
        return draw(lengths, (mix(seed, own_seed(seq), at_prompt) + 0.5) / 2**64)

    def own_seed(seq: Sequence) -> int:
        return seq.seed if seq.request.params.temperature > 0 else 0

    return script


def _digest(seq: Sequence, end: int) -> int:
    """Return a hash of the tokens before `end`: of how many there are, and of the last ones."""
    last = seq.tokens.view(max(0, end - _HASHED), end)
    return mix(end, zlib.crc32(last.tobytes()))


_HASHED = 64
"""Tokens that go into a hash; all of them would cost a long prompt dearly at every step."""
