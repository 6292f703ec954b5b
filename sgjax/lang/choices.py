"""How `select` decides: methods that turn log-probabilities into scores, and the draw.

Imports errors and the backend's records.
"""

import abc
import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from sgjax.errors import ConfigError
from sgjax.lang.backends.base import ChoiceLogprobs


@dataclass(frozen=True)
class ChoicesMethod(abc.ABC):
    """Score choices from the log-probabilities of their tokens.

    Attributes:
        unconditional: needs the choices' log-probabilities without the prompt.
        tokenisations: needs every tokenisation of a choice.
        is_probability: scores are log-probabilities (up to a constant), so that one can draw.
    """

    unconditional: ClassVar[bool] = False
    tokenisations: ClassVar[bool] = False
    is_probability: ClassVar[bool] = True

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Return the method's public name."""

    @abc.abstractmethod
    def scores(self, logprobs: Sequence[ChoiceLogprobs]) -> list[float]:
        """Return one score a choice; the best is the highest."""


@final
@dataclass(frozen=True)
class TokenLengthNormalized(ChoicesMethod):
    """The mean log-probability of a choice's tokens."""

    name = "token_length_normalized"

    def scores(self, logprobs: Sequence[ChoiceLogprobs]) -> list[float]:
        """Return each choice's mean."""
        return [_mean(choice.tokens) for choice in logprobs]


@final
@dataclass(frozen=True)
class GreedyTokenSelection(ChoicesMethod):
    """The choice that greedy decoding restricted to the choices would take.

    Tokens are compared one position at a time; a choice that has ended goes on with its mean.
    Among equals the first wins.
    """

    name = "greedy_token_selection"
    is_probability = False

    def scores(self, logprobs: Sequence[ChoiceLogprobs]) -> list[float]:
        """Return the number of positions at which each choice was still among the best."""
        left = list(range(len(logprobs)))
        survived = [0.0] * len(logprobs)
        for position in range(max(len(choice.tokens) for choice in logprobs)):
            values = {i: _at(logprobs[i].tokens, position) for i in left}
            best = max(values.values())
            left = [i for i in left if values[i] == best]
            for i in left:
                survived[i] += 1
            if len(left) == 1:
                break
        return survived


@final
@dataclass(frozen=True)
class UnconditionalLikelihoodNormalized(ChoicesMethod):
    """How much the prompt raises a choice's mean log-probability over having no prompt."""

    name = "unconditional_likelihood_normalized"
    unconditional = True

    def scores(self, logprobs: Sequence[ChoiceLogprobs]) -> list[float]:
        """Return mean with the prompt minus mean without it."""
        return [_mean(choice.tokens) - _mean(choice.unconditional) for choice in logprobs]


@final
@dataclass(frozen=True)
class SequenceLikelihood(ChoicesMethod):
    """The probability of a choice's text, summed over all of its tokenisations.

    It is refused where a choice has too many of them to score each.
    """

    name = "sequence_likelihood"
    tokenisations = True

    def scores(self, logprobs: Sequence[ChoiceLogprobs]) -> list[float]:
        """Return each choice's log-probability."""
        return [_logsumexp(choice.tokenisations) for choice in logprobs]


token_length_normalized = TokenLengthNormalized()
greedy_token_selection = GreedyTokenSelection()
unconditional_likelihood_normalized = UnconditionalLikelihoodNormalized()
sequence_likelihood = SequenceLikelihood()

METHODS: tuple[ChoicesMethod, ...] = (
    token_length_normalized,
    greedy_token_selection,
    unconditional_likelihood_normalized,
    sequence_likelihood,
)


@dataclass(frozen=True)
class Decision:
    """A select's outcome: the index of the winner, and meta info."""

    index: int
    meta: dict[str, Any]


def decide(
    method: ChoicesMethod,
    choices: Sequence[str],
    logprobs: Sequence[ChoiceLogprobs],
    temperature: float,
    seed: str | None,
) -> Decision:
    """Pick a choice.

    Args:
        method: scores the choices.
        choices: their texts.
        logprobs: of their tokens.
        temperature: 0 takes the best, the first of equals; else draw from softmax(score / t).
        seed: fixes the draw; None draws afresh.
    """
    scores = method.scores(logprobs)
    if temperature == 0:
        index = max(range(len(scores)), key=lambda i: (scores[i], -i))
    else:
        index = _draw([score / temperature for score in scores], _uniform(seed))
    meta = {
        "choices": list(choices),
        "scores": scores,
        "choice_logprobs": [sum(choice.tokens) for choice in logprobs],
        "choice_token_logprobs": [list(choice.tokens) for choice in logprobs],
        "choices_method": method.name,
    }
    return Decision(index, meta)


def check_temperature(method: ChoicesMethod, temperature: float) -> None:
    """Refuse to draw by scores that are no log-probabilities.

    Raises:
        ConfigError: temperature is negative, or above 0 with such a method.
    """
    if not (isinstance(temperature, int | float) and 0 <= temperature < math.inf):
        raise ConfigError(f"select: temperature={temperature!r} must be a number >= 0")
    if temperature > 0 and not method.is_probability:
        raise ConfigError(
            f"select: temperature={temperature} draws a choice, but {method.name} gives no "
            "probabilities; use temperature=0 or another choices_method"
        )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _at(tokens: Sequence[float], position: int) -> float:
    return tokens[position] if position < len(tokens) else _mean(tokens)


def _logsumexp(values: Sequence[float]) -> float:
    top = max(values)
    return top if top == -math.inf else top + math.log(sum(math.exp(v - top) for v in values))


def _draw(logits: Sequence[float], uniform: float) -> int:
    top = max(logits)
    weights = [math.exp(logit - top) for logit in logits]
    left = uniform * sum(weights)
    for index, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return index
    return len(weights) - 1


def _uniform(seed: str | None) -> float:
    if seed is None:
        return random.random()
    return int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=7).digest()) / 2.0**56
