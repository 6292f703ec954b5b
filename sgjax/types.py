"""What crosses layers: requests, their parameters, completions.

Owns the frozen records that the language, the server, the scheduler and the executors exchange.
Imports the standard library, `params` and `errors` only. A `Request` pickles: it carries patterns,
never compiled grammars or arrays that live on a device.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sgjax.params import Constraint, ConstraintKind, Reports, SamplingParams

__all__ = [
    "MAX_TOP_LOGPROBS",
    "Completion",
    "Constraint",
    "ConstraintKind",
    "Delta",
    "ExactReport",
    "FinishKind",
    "FinishReason",
    "Reports",
    "Request",
    "SamplingParams",
    "TokenId",
    "TokenLogprob",
    "Wants",
]

TokenId = int

MAX_TOP_LOGPROBS = 32
"""Most alternatives reported beside a log-probability: the executors gather so many at most."""


class Wants(enum.Enum):
    """What a request asks for; only `TOKENS` occupies a running slot after its prompt."""

    TOKENS = "tokens"
    """New tokens: an ordinary generation."""
    LOGPROBS = "logprobs"
    """Log-probabilities of prompt tokens and nothing else (`select` scores choices so)."""
    NOTHING = "nothing"
    """Nothing back: the prompt's K/V shall be in the cache (a frontend hint)."""


@dataclass(frozen=True)
class Request:
    """What was asked, in full; never mutated.

    Attributes:
        id: unique among the engine's live requests.
        tokens: the prompt's token ids, at least one.
        params: sampling and ending.
        wants: what comes back.
        constraint: the pattern the output must match, or None.
        return_logprob: report log-probabilities of the output tokens.
        logprob_start: first prompt index reported in `input_logprobs`; None reports none. Its own
            entry has no log-probability (that would need the logits before it); the prefix match
            ends at it, because the log-probabilities of all later tokens need logits.
        top_logprobs: alternatives to report beside each log-probability.
        after: id of the hint this request was announced by; it waits until the hint is computed.
        followers: for a hint: how many requests will name it in `after`. Its pin lasts until the
            last of them is admitted or aborted, or nothing else can run.
        client: whom fairness policies account this request to.
        stream: deliver `Delta`s while it runs; otherwise only the last one comes.
        media: (start, end, digest) spans of `tokens` that stand for media features.
    """

    id: str
    tokens: Sequence[TokenId]
    params: SamplingParams = field(default_factory=SamplingParams)
    wants: Wants = Wants.TOKENS
    constraint: Constraint | None = None
    return_logprob: bool = False
    logprob_start: int | None = None
    top_logprobs: int = 0
    after: str | None = None
    followers: int = 0
    client: str = ""
    stream: bool = False
    media: tuple[tuple[int, int, str], ...] = ()


class FinishKind(enum.Enum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True)
class FinishReason:
    """Why a request ended, and on what.

    Attributes:
        kind: stop, length or abort.
        matched: the stop string or token id that ended it, for `STOP`.
        error: what went wrong, for `ABORT`.
    """

    kind: FinishKind
    matched: str | int | None = None
    error: Exception | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the public form: type, and matched, or message and the error's name."""
        out: dict[str, Any] = {"type": self.kind.value}
        if self.kind is FinishKind.STOP:
            out["matched"] = self.matched
        if self.kind is FinishKind.ABORT:
            out["message"] = str(self.error) if self.error else "aborted"
            out["error"] = type(self.error).__name__
        return out


@dataclass(frozen=True)
class TokenLogprob:
    """The log-probability of one token under the model's raw distribution (natural log).

    Attributes:
        logprob: None for the first reported prompt token, whose distribution was not computed.
        token_id: the token.
        top: (logprob, token id) of the likeliest alternatives, best first.
        log_mass: of a sampled token, the log of the probability of all tokens that its constraint
            allowed there; 0 without a constraint.
    """

    logprob: float | None
    token_id: TokenId
    top: tuple[tuple[float, TokenId], ...] = ()
    log_mass: float = 0.0


@dataclass(frozen=True)
class ExactReport:
    """How an output was drawn from the model's distribution conditioned on its constraint.

    Attributes:
        enumerated: whether all outputs of the language were weighed, else drawn candidates.
        weighed: how many outputs were weighed.
        language_logprob: log of the model's probability of the whole language; estimated where
            candidates were drawn.
        conditional_logprob: the output's log-probability, given that the language is kept to.
        effective_sample_size: what the drawn candidates are worth in independent draws from the
            conditional distribution, (sum w)^2 / (sum w^2); None where all were enumerated.
    """

    enumerated: bool
    weighed: int
    language_logprob: float
    conditional_logprob: float
    effective_sample_size: float | None


@dataclass(frozen=True)
class Completion:
    """All that is known of a request when it ends.

    Attributes:
        id: the request's id.
        text: the output text, trimmed as the parameters say.
        output_ids: the generated token ids, including an end id that ended the output.
        prompt_tokens: length of the prompt.
        cached_tokens: prompt tokens whose K/V came from the cache at first admission.
        forced_tokens: output tokens appended by jump-forward rather than sampled.
        finish: why it ended.
        input_logprobs: one entry per prompt token from `logprob_start` on, where asked.
        output_logprobs: one entry per output token, where asked.
        top_logprobs: alternatives asked for beside each.
        exact: how it was drawn, with `grammar.sampler: exact`.
        queued_s, ttft_s, e2e_s: seconds from arrival to first admission, to the first output
            token and to the end, on the scheduler's clock.
    """

    id: str
    text: str
    output_ids: tuple[TokenId, ...]
    prompt_tokens: int
    cached_tokens: int
    forced_tokens: int
    finish: FinishReason
    input_logprobs: tuple[TokenLogprob, ...] | None
    output_logprobs: tuple[TokenLogprob, ...] | None
    queued_s: float
    ttft_s: float
    e2e_s: float
    top_logprobs: int = 0
    exact: ExactReport | None = None


@dataclass(frozen=True)
class Delta:
    """New output of a running request, in order; the last one carries the completion.

    Attributes:
        id: the request's id.
        text: text that is now certain: whole characters, no possible beginning of a stop string.
        token_ids: output tokens from `start` on. A jump may write delivered text in other tokens;
            then `start` lies before the end of what was delivered, and these replace the rest.
        completion: set on the last delta only.
        start: index of the first of them in the output.
    """

    id: str
    text: str
    token_ids: tuple[TokenId, ...]
    completion: Completion | None = None
    start: int = 0
