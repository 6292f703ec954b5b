"""SpeculativeBackend: API speculative execution (paper section 5), around any backend.

Imports the Backend protocol and usage. A generation with a stop is let run `num_tokens` past it;
what the model wrote beyond is kept, and answers the stream's next generations as long as the
program's own text is what the model wrote:

    asked     "name:" -> value | surplus: "\\njob: clerk\\nborn: 19"
    program   "\\njob:" is the surplus's beginning, so " clerk" is the value of gen("job", "\\n")

A value is taken only where an ordinary call would have given it: the literal ends at a token's
end, the sampling is the same, and the value ends at its stop, at its length in tokens, or where
the model ended.
"""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.lang.backends.base import (
    Answer,
    Backend,
    Call,
    GenCall,
    GenOutput,
    Hear,
)
from sgjax.lang.backends.forwarding import ForwardingBackend
from sgjax.lang.backends.usage import TokenUsage
from sgjax.types import SamplingParams


@dataclass(frozen=True)
class Surplus:
    """What a model wrote past a value.

    Attributes:
        text: the prompt's text with the value; what was written follows it.
        num_messages: finished messages there; the surplus belongs to one message.
        pieces: tokens as texts; the first may be the rest of a token.
        ended: the model ended there by itself.
        sampling: parameters it was sampled with.
    """

    text: str
    num_messages: int
    pieces: tuple[str, ...]
    ended: bool
    sampling: SamplingParams


@dataclass(frozen=True)
class Cut:
    """A value cut from pieces.

    Attributes:
        value: its text.
        tokens: tokens that hold the value and its stop.
        rest: what follows the value.
        finish: finish reason.
    """

    value: str
    tokens: int
    rest: tuple[str, ...]
    finish: dict[str, Any]


@final
class SpeculativeBackend(ForwardingBackend):
    """Let generations run past their stops and reuse what was written.

    Args:
        inner: answers what is asked.
        num_tokens: how many tokens to run on.

    Attributes:
        usage: requests, tokens, and what became of them.
    """

    def __init__(self, inner: Backend, num_tokens: int) -> None:
        if not isinstance(num_tokens, int) or num_tokens < 1:
            raise ConfigError(f"num_api_spec_tokens={num_tokens!r} must be an integer >= 1")
        super().__init__(inner)
        self.usage = TokenUsage()
        self._num_tokens = num_tokens
        self._surplus: dict[int, Surplus] = {}
        self._lock = threading.Lock()

    @property
    def continues_messages(self) -> bool:
        """Return True: the beginning of a message is matched with what the model wrote."""
        return True

    def submit(self, calls: Sequence[Call], hear: Hear) -> None:
        """Answer from surplus what can be; ask for the rest."""
        asked: list[Call] = []
        listeners: list[Callable[[Answer], None]] = []
        for index, call in enumerate(calls):
            answer = _answer(hear, index)
            if not isinstance(call, GenCall):
                asked.append(call)
                listeners.append(answer)
                continue
            found = self._from_surplus(call)
            if found is not None:
                if call.after is not None:
                    self._inner.release(call.after, 1)
                answer(found)
                continue
            request, listener = self._widened(call, answer)
            asked.append(request)
            listeners.append(listener)
        self._ask(asked, listeners)

    # ---------------------------------------------------------------- private

    def _ask(self, calls: list[Call], listeners: list[Callable[[Answer], None]]) -> None:
        """Submit calls to the inner backend; where it takes none, their listeners hear why."""
        if not calls:
            return
        try:
            self._inner.submit(calls, lambda index, heard: listeners[index](heard))
        except Exception as error:
            for listener in listeners:
                listener(error)

    def _from_surplus(self, call: GenCall) -> GenOutput | None:
        """Return a call's output if the stream's surplus holds it."""
        with self._lock:
            surplus = self._surplus.pop(call.stream_id, None)
        prompt = call.prompt
        if (
            surplus is None
            or not prompt.text.startswith(surplus.text)
            or surplus.num_messages != len(prompt.messages)
            or surplus.sampling != _sampling(call.params)
            or not _is_plain(call)
        ):
            return None
        rest = after_literal(surplus.pieces, prompt.text[len(surplus.text) :])
        cut = None if rest is None else cut_value(rest, call.params, surplus.ended)
        if cut is None:
            return None
        self._keep(call, cut, surplus.ended)
        self.usage.add(reused_tokens=cut.tokens)
        meta = {
            "prompt_tokens": 0,
            "completion_tokens": cut.tokens,
            "finish_reason": cut.finish,
            "speculated": True,
        }
        return GenOutput((cut.value,), (meta,))

    def _widened(
        self, call: GenCall, answer: Callable[[Answer], None]
    ) -> tuple[GenCall, Callable[[Answer], None]]:
        """Return what to ask for a call, and who listens."""
        prompt = call.prompt
        # A chat API writes whole messages: what is there of this one must come from the model.
        begun = prompt.open_text if not self._inner.continues_messages else ""
        if not _is_plain(call) or not (call.params.stop or begun):
            if begun:
                answer_error = UnsupportedBackend(
                    f"the message {begun!r} is begun, and a chat API can continue it by "
                    "speculation only, which takes no n, constraint, min_tokens or return_logprob"
                )
                return call, lambda _: answer(answer_error)
            return call, lambda heard: self._pass_on(heard, answer)
        params = dataclasses.replace(
            call.params,
            stop=(),
            max_new_tokens=call.params.max_new_tokens + self._num_tokens + len(begun),
        )
        if begun:
            prompt = dataclasses.replace(prompt, text=prompt.text[: -len(begun)], open_text="")
        asked = dataclasses.replace(call, prompt=prompt, params=params, pieces=True, stream=False)
        return asked, lambda heard: self._take(call, begun, heard, answer)

    def _take(
        self, call: GenCall, begun: str, heard: Answer, answer: Callable[[Answer], None]
    ) -> None:
        """Cut a call's value from what the model wrote; keep the rest."""
        if not isinstance(heard, GenOutput):
            answer(heard)
            return
        meta = heard.meta[0]
        self._count(meta)
        ended = meta["finish_reason"]["type"] == "stop"
        rest = None if heard.pieces is None else after_literal(heard.pieces, begun)
        cut = None if rest is None else cut_value(rest, call.params, ended)
        if cut is not None:
            self._keep(call, cut, ended)
            self.usage.add(used_tokens=cut.tokens)
            own = {
                "completion_tokens": cut.tokens,
                "finish_reason": cut.finish,
                "speculated": False,
            }
            answer(GenOutput((cut.value,), ({**meta, **own},)))
        elif begun:
            answer(
                UnsupportedBackend(
                    f"the model wrote {heard.texts[0][:80]!r}, which does not begin with "
                    f"{begun!r}; a chat API cannot be made to: describe the format in the "
                    "user's message"
                )
            )
        else:  # without its tokens an output cannot be cut by length: ask the ordinary way
            self._ask([call], [lambda again: self._pass_on(again, answer)])

    def _pass_on(self, heard: Answer, answer: Callable[[Answer], None]) -> None:
        if isinstance(heard, GenOutput):
            for meta in heard.meta:
                self._count(meta)
                self.usage.add(used_tokens=meta.get("completion_tokens") or 0)
        answer(heard)

    def _keep(self, call: GenCall, cut: Cut, ended: bool) -> None:
        prompt = call.prompt
        surplus = Surplus(
            prompt.text + cut.value,
            len(prompt.messages),
            cut.rest,
            ended,
            _sampling(call.params),
        )
        with self._lock:
            self._surplus[call.stream_id] = surplus

    def _count(self, meta: dict[str, Any]) -> None:
        self.usage.add(
            requests=1,
            prompt_tokens=meta.get("prompt_tokens") or 0,
            completion_tokens=meta.get("completion_tokens") or 0,
        )


def after_literal(pieces: Sequence[str], literal: str) -> tuple[str, ...] | None:
    """Return the pieces behind a literal, or None where the literal is not what they begin with.

    The literal must end where a piece ends: an ordinary call would continue from there, and from
    within a token it might continue otherwise.
    """
    for index, piece in enumerate(pieces):
        if not literal:
            return tuple(pieces[index:])
        if not literal.startswith(piece):
            return None
        literal = literal[len(piece) :]
    return None if literal else ()


def cut_value(pieces: Sequence[str], params: SamplingParams, ended: bool) -> Cut | None:
    """Return the value that a generation with these parameters would be, or None if unknown.

    Args:
        pieces: what the model wrote, a token each.
        params: stops and length of the generation.
        ended: the model ended after the pieces by itself.
    """
    text = ""
    longest = max(map(len, params.stop), default=0)
    for count, piece in enumerate(pieces[: params.max_new_tokens], start=1):
        searched = max(0, len(text) - longest)
        text += piece
        found = [(at, s) for s in params.stop if (at := text.find(s, searched)) >= 0]
        if found:
            at, stop = min(found)
            rest = (text[at:], *pieces[count:])
            return Cut(text[:at], count, rest, {"type": "stop", "matched": stop})
    if len(pieces) >= params.max_new_tokens:
        rest = tuple(pieces[params.max_new_tokens :])
        return Cut(text, params.max_new_tokens, rest, {"type": "length"})
    if ended:
        return Cut(text, len(pieces), (), {"type": "stop", "matched": None})
    return None


def _sampling(params: SamplingParams) -> SamplingParams:
    """Return the part of the parameters that must agree for a surplus to be reused."""
    return dataclasses.replace(params, stop=(), max_new_tokens=1, min_new_tokens=0, seed=None)


def _is_plain(call: GenCall) -> bool:
    """Return whether a call asks for nothing that a cut output cannot give."""
    params = call.params
    return (
        params.n == 1
        and params.constraint is None
        and params.min_new_tokens == 0
        and not params.no_stop_trim
        and not call.return_logprob
    )


def _answer(hear: Hear, index: int) -> Callable[[Answer], None]:
    return lambda answer: hear(index, answer)
