"""LocalBackend: the language on an engine in this process.

Imports types, tokens and the engine's result records; no jax. The engine answers on its own
thread, which only hands over.
"""

import codecs
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, final, runtime_checkable

from sgjax.engine.inputs import sample_seed
from sgjax.engine.results import result_of
from sgjax.errors import ConfigError, RequestAborted, UnsupportedBackend
from sgjax.lang.backends.base import (
    Answer,
    Backend,
    Call,
    ChatFormat,
    GenCall,
    GenOutput,
    Hear,
    Hint,
    Piece,
    Prompt,
    SelectCall,
)
from sgjax.lang.backends.boundary import stable_prefix
from sgjax.lang.backends.scoring import plan_scoring, read_scores
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.chat import ChatTemplate
from sgjax.types import Completion, Delta, FinishKind, Request, Wants

Heard = Delta | Exception
Listener = Callable[[Heard], None]
Outgoing = tuple[Request, Listener]


@runtime_checkable
class EngineLike(Protocol):
    """What of an engine the language uses."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer."""
        ...

    def submit(self, requests: list[Request], hear: Callable[[int, Heard], None]) -> None:
        """Enqueue requests together."""
        ...

    def new_id(self) -> str:
        """Return a request id."""
        ...

    def release_hint(self, hint_id: str, followers: int | None = None) -> None:
        """Stop expecting so many followers of a hint."""
        ...

    def flush_cache(self) -> bool:
        """Drop all cached prefixes."""
        ...

    def get_server_info(self) -> dict[str, Any]:
        """Return configuration and counters."""
        ...


@final
class LocalBackend(Backend):
    """Run programs on an engine.

    Args:
        engine: `sgl.Engine`, or anything that serves requests like it.
        chat: name or source of a chat template; None takes the model's own, else "plain".
    """

    def __init__(self, engine: EngineLike, chat: str | None = None) -> None:
        self._engine = engine
        self._tokenizer = engine.tokenizer
        self._template = chat or self._tokenizer.chat_template or "plain"

    @property
    def chat(self) -> ChatFormat:
        """Return the chat template, compiled when it is first needed."""
        return _compiled(self._template)

    @property
    def takes_hints(self) -> bool:
        """Return that an engine takes hints."""
        return True

    @property
    def continues_messages(self) -> bool:
        """Return that text is text, wherever it stands."""
        return True

    def submit(self, calls: Sequence[Call], hear: Hear) -> None:
        """Tokenise calls and enqueue all of their requests together."""
        outgoing: list[Outgoing] = []
        for index, call in enumerate(calls):
            answer = functools.partial(hear, index)
            try:
                if isinstance(call, GenCall):
                    outgoing += self._gen(call, answer)
                else:
                    outgoing += self._select(call, answer)
            except Exception as error:
                if call.after is not None:
                    self.release(call.after, 1)
                answer(error)
        self._send(outgoing)

    def hint(self, prefix: Prompt, followers: int, after: Hint | None) -> Hint | None:
        """Announce the tokens of a prefix that its continuations leave alone."""
        if prefix.media:
            return None
        try:
            tokens = stable_prefix(self._tokenizer, prefix.text)
        except ConfigError:
            return None  # whoever continues the prefix is told what is wrong with it
        if not tokens:
            return None
        hint = Hint(self._engine.new_id())
        request = Request(
            id=hint.id,
            tokens=tuple(tokens),
            wants=Wants.NOTHING,
            after=_after(after),
            followers=followers,
        )
        self._send([(request, _mark_dead(hint))])
        return hint

    def release(self, hint: Hint, followers: int) -> None:
        """Stop expecting so many followers of a hint."""
        self._engine.release_hint(hint.id, followers)

    def flush_cache(self) -> bool:
        """Drop the engine's cached prefixes."""
        return self._engine.flush_cache()

    def get_server_info(self) -> dict[str, Any]:
        """Return the engine's configuration and counters."""
        return self._engine.get_server_info()

    # ---------------------------------------------------------------- private

    def _send(self, outgoing: list[Outgoing]) -> None:
        """Enqueue requests together; where the engine takes none, their listeners hear why."""
        if not outgoing:
            return
        listeners = [listener for _, listener in outgoing]
        try:
            self._engine.submit(
                [request for request, _ in outgoing],
                lambda index, heard: listeners[index](heard),
            )
        except Exception as error:
            for listener in listeners:
                listener(error)

    def _gen(self, call: GenCall, answer: Callable[[Answer], None]) -> list[Outgoing]:
        if call.prompt.media:
            raise UnsupportedBackend(
                "this engine takes no images or video; drop sgl.image and sgl.video"
            )
        if not call.prompt.text:
            raise ConfigError("gen: the prompt is empty; append text before it")
        params = call.params
        tokens = tuple(self._tokenizer.encode(call.prompt.text, add_bos=True))
        wants_prompt = call.return_logprob and call.logprob_start >= 0
        collected = _Collected(params.n, functools.partial(self._output, call), answer)
        outgoing: list[Outgoing] = []
        for sample in range(params.n):
            request = Request(
                id=self._engine.new_id(),
                tokens=tokens,
                params=dataclasses.replace(params, n=1, seed=sample_seed(params.seed, sample)),
                constraint=params.constraint,
                return_logprob=call.return_logprob,
                logprob_start=call.logprob_start if wants_prompt else None,
                top_logprobs=call.top_logprobs if call.return_logprob else 0,
                after=None if sample else _after(call.after),
                stream=call.stream and sample == 0,
            )
            listener = functools.partial(collected.hear, sample)
            outgoing.append((request, self._retried(request, listener)))
        return outgoing

    def _output(self, call: GenCall, samples: list[Completion]) -> GenOutput:
        metas = tuple(result_of(c, self._tokenizer)["meta_info"] for c in samples)
        pieces = self._pieces(samples[0]) if call.pieces else None
        return GenOutput(tuple(c.text for c in samples), metas, pieces)

    def _pieces(self, completion: Completion) -> tuple[str, ...] | None:
        """Return an output's tokens as texts; a character goes to the token that completes it."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        hidden = self._tokenizer.special_ids | self._tokenizer.end_ids
        pieces = tuple(
            decoder.decode(self._tokenizer.token_bytes(token))
            for token in completion.output_ids
            if token not in hidden
        )
        return pieces if "".join(pieces).startswith(completion.text) else None

    def _select(self, call: SelectCall, answer: Callable[[Answer], None]) -> list[Outgoing]:
        if call.prompt.media:
            raise UnsupportedBackend("this engine takes no images or video; drop sgl.image")
        scoring = plan_scoring(self._tokenizer, call, self._engine.new_id, _after(call.after))
        read = functools.partial(read_scores, scoring, len(call.choices))
        collected = _Collected(len(scoring.scored), read, answer)
        outgoing: list[Outgoing] = []
        if scoring.hint is not None:
            outgoing.append((scoring.hint, self._retried(scoring.hint, _ignore)))
        for index, scored in enumerate(scoring.scored):
            listener = functools.partial(collected.hear, index)
            outgoing.append((scored.request, self._retried(scored.request, listener)))
        return outgoing

    def _retried(self, request: Request, listener: Listener) -> Listener:
        """Let a follower go once more, without its hint, where it is refused.

        The hint itself may have been refused; a request that is wrong by itself is refused again.
        """

        def hear(heard: Heard) -> None:
            if isinstance(heard, ConfigError):
                self._send([(dataclasses.replace(request, after=None), listener)])
            else:
                listener(heard)

        return hear if request.after is not None else listener


@final
class _Collected:
    """Make one answer of a call's requests: once, when all have ended or the first has failed.

    Args:
        count: of the requests.
        read: makes the answer of their completions, in order.
        answer: takes it; of a request that streams, pieces before it.
    """

    def __init__(
        self,
        count: int,
        read: Callable[[list[Completion]], Answer],
        answer: Callable[[Answer], None],
    ) -> None:
        self._left = set(range(count))
        self._completions: dict[int, Completion] = {}
        self._read = read
        self._answer = answer

    def hear(self, index: int, heard: Heard) -> None:
        """Take in what a request's listener heard."""
        if not self._left:
            return  # a sibling has failed, so that the call is over
        completion = _finished(heard)
        if isinstance(completion, Exception):
            self._left.clear()
            self._answer(completion)
        elif completion is None:
            assert isinstance(heard, Delta)
            if heard.text:
                self._answer(Piece(heard.text))
        else:
            self._left.discard(index)
            self._completions[index] = completion
            if not self._left:
                self._answer(self._whole())

    def _whole(self) -> Answer:
        try:
            return self._read([self._completions[i] for i in sorted(self._completions)])
        except Exception as error:  # a defect here must fail its call, not leave it waiting
            return error


@functools.lru_cache(maxsize=16)
def _compiled(template: str) -> ChatTemplate:
    return ChatTemplate(template)


def _after(hint: Hint | None) -> str | None:
    return None if hint is None or hint.dead else hint.id


def _mark_dead(hint: Hint) -> Listener:
    def hear(heard: Heard) -> None:
        if isinstance(heard, Exception):
            hint.dead = True

    return hear


def _ignore(heard: Heard) -> None:
    """Let a hint fail: whoever follows it is told of what is wrong with the prompt."""


def _finished(heard: Heard) -> Completion | Exception | None:
    """Return a finished request's completion, what made it fail, or None while it runs."""
    if isinstance(heard, Exception) or heard.completion is None:
        return heard if isinstance(heard, Exception) else None
    if heard.completion.finish.kind is FinishKind.ABORT:
        return heard.completion.finish.error or RequestAborted(f"{heard.id!r} was aborted")
    return heard.completion
