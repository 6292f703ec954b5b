"""How a masking engine spreads its probability over the texts of a small language.

Imports schedule's jumps, fsm, the workload protocol and types. The engine's decisions are walked
through as a tree: at each place the tokens that the mask allows are scored by the engine itself,
and what the engine would append by a jump is appended. So the probability of a text is the sum over
all ways to write it, not an estimate from samples.
"""

import math
import queue
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sgjax.errors import ProgramError
from sgjax.fsm.grammar import Grammar
from sgjax.fsm.jump import JumpMode
from sgjax.fsm.language import list_outputs
from sgjax.fsm.vocabulary import unpack_ids
from sgjax.lang.backends.local import EngineLike
from sgjax.schedule.constrain import next_jump
from sgjax.tokens.base import Tokenizer
from sgjax.types import Completion, Delta, FinishKind, Request, Wants

Tokens = tuple[int, ...]
Step = tuple[Tokens, int]
"""A context and the token behind it."""
T = TypeVar("T")

AT_ONCE = 512
"""Requests that are sent together at most."""


def ask_all(engine: EngineLike, requests: Sequence[Request]) -> list[Completion]:
    """Run requests together and return their completions, in order.

    Raises:
        ProgramError: one was refused or failed.
    """
    heard: queue.SimpleQueue[tuple[int, Delta | Exception]] = queue.SimpleQueue()
    done: dict[int, Completion] = {}
    for first in range(0, len(requests), AT_ONCE):
        part = list(requests[first : first + AT_ONCE])
        engine.submit(part, lambda index, what, first=first: heard.put((first + index, what)))  # type: ignore[misc]
        while len(done) < first + len(part):
            index, what = heard.get()
            completion = what if isinstance(what, Exception) else what.completion
            if isinstance(completion, Exception):
                raise ProgramError(f"a request was refused: {completion}") from completion
            if completion is not None:
                if completion.finish.kind is FinishKind.ABORT:
                    raise ProgramError(f"a request failed: {completion.finish.error}")
                done[index] = completion
    return [done[i] for i in range(len(requests))]


class Scores:
    """Log-probabilities of single tokens behind contexts, each asked for once.

    Args:
        engine: scores them.
        known: what is known already of the engine's model; what is learnt is added.
    """

    def __init__(self, engine: EngineLike, known: dict[Step, float]) -> None:
        self._engine = engine
        self._known = known

    def learn(self, wanted: Iterable[Step]) -> None:
        """Ask for what is not known, all together."""
        missing = [step for step in dict.fromkeys(wanted) if step not in self._known]
        requests = [
            Request(
                self._engine.new_id(),
                (*context, token),
                wants=Wants.LOGPROBS,
                logprob_start=len(context) - 1,
            )
            for context, token in missing
        ]
        for step, completion in zip(missing, ask_all(self._engine, requests), strict=True):
            assert completion.input_logprobs is not None
            logprob = completion.input_logprobs[-1].logprob
            assert logprob is not None
            self._known[step] = logprob

    def of(self, context: Tokens, token: int) -> float:
        """Return a log-probability that was learnt."""
        return self._known[context, token]


Walk = Generator[list[Step], None, T]
"""What asks for steps to be scored before it goes on, and returns something in the end."""


def walk_together(walks: Sequence[Walk[T]], scores: Scores) -> list[T]:
    """Run walks side by side, so that what they ask for is scored in large batches."""
    done: dict[int, T] = {}
    alive = dict(enumerate(walks))
    while alive:
        wanted: list[Step] = []
        for index, walk in list(alive.items()):
            try:
                wanted += next(walk)
            except StopIteration as end:
                done[index] = end.value
                del alive[index]
        scores.learn(wanted)
    return [done[index] for index in range(len(walks))]


@dataclass(frozen=True)
class Spread:
    """Probabilities of texts.

    Attributes:
        texts: each text's.
        lost: of the ways that were not followed to their end because they are too improbable.
    """

    texts: dict[bytes, float]
    lost: float


def true_outputs(
    grammar: Grammar, tokenizer: Tokenizer, prompt: Tokens, scores: Scores, limit: int
) -> Walk[dict[Tokens, float]]:
    """Work out the model's own distribution over outputs, conditioned on the language.

    Args:
        grammar: of at most `limit` texts, written in the tokenizer's own tokens.
        tokenizer: writes them.
        prompt: before the output.
        scores: knows what was asked for.
        limit: see there.

    Returns:
        Probabilities by output.

    Raises:
        ProgramError: the language has more texts.
    """
    outputs = list_outputs(grammar, tokenizer, limit)
    if outputs is None:
        raise ProgramError(f"the language of a case has more than {limit} texts; make it smaller")
    steps = [
        [((*prompt, *output[:i]), token) for i, token in enumerate(output)] for output in outputs
    ]
    yield [step for own in steps for step in own]
    shares = _normalised([sum(scores.of(*step) for step in own) for own in steps])
    return dict(zip(outputs, shares, strict=True))


def over_texts(outputs: Mapping[Tokens, float], tokenizer: Tokenizer) -> Spread:
    """Return the distribution over the texts that outputs stand for."""
    texts: dict[bytes, float] = defaultdict(float)
    for output, share in outputs.items():
        texts[_bytes(tokenizer, output)] += share
    return Spread(dict(texts), 0.0)


def masked_spread(
    grammar: Grammar,
    jump: JumpMode,
    tokenizer: Tokenizer,
    prompt: Tokens,
    scores: Scores,
    room: int,
    least: float,
) -> Walk[Spread]:
    """Work out the distribution of an engine that masks, renormalises and draws token by token.

    Args:
        grammar: with its mask mode.
        jump: what happens where text is forced.
        tokenizer: gives the bytes of tokens.
        prompt: before the output.
        scores: knows what was asked for.
        room: tokens of an output at most.
        least: ways of a smaller probability are not followed.
    """
    texts: dict[bytes, float] = defaultdict(float)
    lost = 0.0
    places: dict[tuple[Tokens, int], float] = {((), grammar.start): 1.0}
    while places:
        waiting: dict[tuple[Tokens, int], float] = defaultdict(float)
        for (output, state), probability in places.items():
            found = None
            if not grammar.is_final(state):
                # An engine leaves room for one token to be sampled first.
                left = room - len(output) - (not output)
                found = next_jump(jump, grammar, state, list(output), left)
            if found is not None:
                output, state = (*output[: found[0].keep], *found[0].append), found[1]
            if grammar.is_final(state):
                texts[_bytes(tokenizer, output)] += probability
            elif probability < least or len(output) >= room:
                lost += probability
            else:
                waiting[output, state] += probability
        rows = {place: grammar.mask_row(place[1]) for place in waiting}
        allowed = {place: unpack_ids(grammar.rows[row]).tolist() for place, row in rows.items()}
        yield [((*prompt, *p[0]), token) for p, own in allowed.items() for token in own]
        places = defaultdict(float)
        for (output, state), probability in waiting.items():
            own = allowed[output, state]
            shares = _normalised([scores.of((*prompt, *output), token) for token in own])
            for token, part in zip(own, shares, strict=True):
                share = probability * part
                if token in tokenizer.end_ids:
                    texts[_bytes(tokenizer, output)] += share
                else:
                    places[(*output, token), grammar.advance(state, token)] += share
    return Spread(dict(texts), lost)


def divergence(p: Spread, q: Spread, least: float) -> float:
    """Return KL(p || q) in nats; what q has lost counts as probable as `least`."""
    return sum(
        share * math.log(share / max(q.texts.get(text, 0.0), least))
        for text, share in p.texts.items()
        if share > 0
    )


def _normalised(logprobs: Sequence[float]) -> list[float]:
    """Return probabilities in proportion to those given by their logarithms."""
    most = max(logprobs)
    weights = [math.exp(logprob - most) for logprob in logprobs]
    return [weight / sum(weights) for weight in weights]


def _bytes(tokenizer: Tokenizer, output: Tokens) -> bytes:
    return b"".join([tokenizer.token_bytes(i) for i in output if i not in tokenizer.end_ids])
