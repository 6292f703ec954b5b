"""Scoring a select on an engine: which requests it takes, and what their answers mean.

Imports types, tokens and the backend's records. The choices' own region begins at the first token
at which any of them leaves the prompt's own tokenisation, the same for all, so that every score
covers the same text after the same tokens (paper section 2; boundary tokens: architecture 6).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sgjax.errors import ConfigError
from sgjax.lang.backends.base import ChoiceLogprobs, SelectCall, SelectOutput
from sgjax.lang.backends.boundary import common_length, tokenisations
from sgjax.tokens.base import Tokenizer
from sgjax.types import Completion, Request, Wants


@dataclass(frozen=True)
class Scored:
    """What one request scores.

    Attributes:
        choice: index of the choice.
        part: "tokens", "tokenisations" or "unconditional": a field of `ChoiceLogprobs`.
        request: wants the log-probabilities of its tokens after `logprob_start`.
    """

    choice: int
    part: str
    request: Request


@dataclass(frozen=True)
class Scoring:
    """All requests of a select.

    Attributes:
        prompt_tokens: length of the prompt's own tokenisation.
        hint: announces the common prefix, or None.
        scored: one per tokenisation of each choice.
    """

    prompt_tokens: int
    hint: Request | None
    scored: tuple[Scored, ...]


def plan_scoring(
    tokenizer: Tokenizer, call: SelectCall, new_id: Callable[[], str], after: str | None
) -> Scoring:
    """Return the requests that score a select's choices.

    Args:
        tokenizer: the engine's.
        call: prompt and choices.
        new_id: gives request ids.
        after: id of the hint that announced the prompt's prefix.

    Raises:
        ConfigError: the prompt leaves no token before the choices, or a choice has too many
            tokenisations.
    """
    text = call.prompt.text
    own = tokenizer.encode(text, add_bos=True) if text else []
    whole = [tokenizer.encode(text + choice, add_bos=True) for choice in call.choices]
    start = min((common_length(own, tokens) for tokens in whole), default=0)
    start = min(start, *(len(tokens) - 1 for tokens in whole))
    if start < 1:
        raise ConfigError(
            "select needs at least one token of prompt before its choices; put text before it"
        )
    hint_id = new_id() if call.hint else None
    scored: list[Scored] = []
    for index, tokens in enumerate(whole):
        ways = [("tokens", tuple(tokens[start:]))]
        if call.tokenisations:
            data = b"".join(tokenizer.token_bytes(t) for t in tokens[start:])
            ways = [("tokenisations", way) for way in tokenisations(tokenizer, data)]
            # The tokenizer's own comes first, whose tokens are reported one by one.
            ways.sort(key=lambda way: way[1] != tuple(tokens[start:]))
        for part, way in ways:
            request = _scoring_request(new_id(), (*tokens[:start], *way), start, hint_id)
            scored.append(Scored(index, part, request))
    hint = None
    if hint_id is not None:
        hint = Request(
            id=hint_id,
            tokens=tuple(whole[0][:start]),
            wants=Wants.NOTHING,
            after=after,
            followers=len(scored),
        )
    if call.unconditional:
        scored += _unconditional(tokenizer, call.choices, new_id)
    return Scoring(len(own), hint, tuple(scored))


def read_scores(scoring: Scoring, choices: int, completions: Sequence[Completion]) -> SelectOutput:
    """Return the log-probabilities that the requests of `scoring` brought, in their order."""
    parts: list[dict[str, list[float]]] = [
        {"tokens": [], "tokenisations": [], "unconditional": []} for _ in range(choices)
    ]
    for scored, completion in zip(scoring.scored, completions, strict=True):
        entries = completion.input_logprobs or ()
        values = [e.logprob for e in entries if e.logprob is not None]
        into = parts[scored.choice]
        if scored.part == "tokenisations":
            into["tokens"] = into["tokens"] or values
            into["tokenisations"].append(sum(values))
        else:
            into[scored.part] += values
    meta: dict[str, Any] = {
        "prompt_tokens": scoring.prompt_tokens,
        "cached_tokens": sum(c.cached_tokens for c in completions),
        "requests": len(completions),
    }
    logprobs = tuple(
        ChoiceLogprobs(
            tuple(part["tokens"]), tuple(part["tokenisations"]), tuple(part["unconditional"])
        )
        for part in parts
    )
    return SelectOutput(logprobs, meta)


def _unconditional(
    tokenizer: Tokenizer, choices: Sequence[str], new_id: Callable[[], str]
) -> list[Scored]:
    """Return requests that score the choices after nothing but the model's start of a text.

    Models without a start token see their end-of-text token there, as between documents in
    training.

    Raises:
        ConfigError: there is no such token.
    """
    starts = tokenizer.end_ids if tokenizer.bos_id is None else {tokenizer.bos_id}
    if not starts:
        raise ConfigError(
            "select: this tokenizer has no token that begins or ends a text, after which "
            "unconditional_likelihood_normalized could score a choice; use another choices_method"
        )
    context = min(starts)
    scored = []
    for index, choice in enumerate(choices):
        # SentencePiece puts a space before any text; one that is there already must not double.
        doubled = tokenizer.strips_leading_space and choice.startswith(" ") and len(choice) > 1
        tokens = tokenizer.encode(choice[1:] if doubled else choice)
        request = _scoring_request(new_id(), (context, *tokens), 1, None)
        scored.append(Scored(index, "unconditional", request))
    return scored


def _scoring_request(
    request_id: str, tokens: tuple[int, ...], start: int, after: str | None
) -> Request:
    # The entry at `logprob_start` itself has no log-probability: begin one token earlier.
    return Request(
        id=request_id, tokens=tokens, wants=Wants.LOGPROBS, logprob_start=start - 1, after=after
    )
