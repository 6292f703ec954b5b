"""ScriptedBackend: answers from a script, and a log of what was asked; for tests and examples.

Imports the Backend protocol and chat templates. It has no model: what it says of probabilities and
token counts is made up, consistently.
"""

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.lang.backends.base import (
    Backend,
    Call,
    ChatFormat,
    ChoiceLogprobs,
    GenCall,
    GenOutput,
    Hear,
    Hint,
    Piece,
    Prompt,
    SelectCall,
    SelectOutput,
)
from sgjax.tokens.chat import ChatTemplate

Reply = str | Exception
Script = Mapping[str, Any] | Callable[[Call], Reply] | Sequence[Reply]


@dataclass(frozen=True)
class LoggedCall:
    """One thing that was asked.

    Attributes:
        kind: "gen", "select", "hint" or "release".
        prompt: the prompt's text ("" for a release).
        call: the whole call, for gens and selects.
        batch: number of the `submit` it came in, -1 for hints.
        after: id of the hint it names, or None.
        hint: id of the hint it made or released, or None.
        followers: of a hint; how many will not come, of a release.
    """

    kind: str
    prompt: str
    call: Call | None = None
    batch: int = -1
    after: str | None = None
    hint: str | None = None
    followers: int = 0


@final
class ScriptedBackend(Backend):
    """Answer from a script.

    Args:
        script: a function of the call; or a mapping from variable names to an answer, a list of
            answers (given out in order) or a function of the call; or a list of answers for all
            calls in order. A gen's answer is what a model would write, cut at the call's stops and
            length; whether it keeps to the call's constraint is the script's affair. A select's
            answer is one of its choices. An exception is a failure.
        chat: name or source of a chat template.
        hold: answer nothing until `release_answers` is called.
        continues_messages: False refuses generations within a begun message, as chat APIs do.
    """

    def __init__(
        self,
        script: Script,
        chat: str = "plain",
        hold: bool = False,
        continues_messages: bool = True,
    ) -> None:
        self._continues = continues_messages
        self.calls: list[LoggedCall] = []
        self._script = script
        self._chat = ChatTemplate(chat)
        self._hold = hold
        self._held: list[Callable[[], None]] = []
        self._given: dict[str, int] = {}
        self._submits = 0
        self._hints = 0
        self._lock = threading.Lock()

    @property
    def chat(self) -> ChatFormat:
        """Return the chat template."""
        return self._chat

    @property
    def takes_hints(self) -> bool:
        """Return that hints are logged."""
        return True

    @property
    def prompts(self) -> list[str]:
        """Return the prompts of all gens and selects so far, in order."""
        return [call.prompt for call in self.calls if call.call is not None]

    @property
    def continues_messages(self) -> bool:
        """Return what the backend was made with."""
        return self._continues

    def submit(self, calls: Sequence[Call], hear: Hear) -> None:
        """Log calls and answer them, or hold the answers back."""
        with self._lock:
            batch, self._submits = self._submits, self._submits + 1
            for call in calls:
                kind = "gen" if isinstance(call, GenCall) else "select"
                after = call.after.id if call.after else None
                self.calls.append(LoggedCall(kind, call.prompt.text, call, batch, after))
            if self._hold:
                self._held += [_later(self, c, i, hear) for i, c in enumerate(calls)]
                return
        for index, call in enumerate(calls):
            self._answer(call, index, hear)

    def release_answers(self) -> None:
        """Give the answers that are held, and hold none from now on."""
        with self._lock:
            self._hold = False
            held, self._held = self._held, []
        for answer in held:
            answer()

    def hint(self, prefix: Prompt, followers: int, after: Hint | None) -> Hint | None:
        """Log a hint."""
        with self._lock:
            hint = Hint(f"h{self._hints}")
            self._hints += 1
            name = after.id if after else None
            self.calls.append(
                LoggedCall("hint", prefix.text, after=name, hint=hint.id, followers=followers)
            )
        return hint

    def release(self, hint: Hint, followers: int) -> None:
        """Log a release."""
        with self._lock:
            self.calls.append(LoggedCall("release", "", hint=hint.id, followers=followers))

    def flush_cache(self) -> bool:
        """Return True: there is no cache."""
        return True

    def get_server_info(self) -> dict[str, Any]:
        """Return the number of calls."""
        return {"backend": "scripted", "calls": len(self.prompts)}

    def _answer(self, call: Call, index: int, hear: Hear) -> None:
        try:
            if call.prompt.open_text and not self._continues:
                raise UnsupportedBackend(f"cannot continue {call.prompt.open_text!r}")
            reply = self._reply(call)
            if isinstance(reply, Exception):
                raise reply
            if isinstance(call, SelectCall):
                hear(index, _select(call, reply))
            else:
                output, pieces = _generate(call, reply)
                for piece in pieces if call.stream else ():
                    hear(index, Piece(piece))
                hear(index, output)
        except Exception as error:
            hear(index, error)

    def _reply(self, call: Call) -> Reply:
        script = self._script
        if callable(script):
            return script(call)
        if isinstance(script, Mapping):
            name = call.name or ""
            if name not in script:
                raise ConfigError(f"the script has no answer for {name!r}; it has: {[*script]}")
            answer = script[name]
            if callable(answer):
                reply: Reply = answer(call)
                return reply
            if isinstance(answer, str | Exception):
                return answer
            return self._next(name, answer)
        return self._next("", script)

    def _next(self, name: str, answers: Sequence[Reply]) -> Reply:
        with self._lock:
            at = self._given.get(name, 0)
            self._given[name] = at + 1
        if at >= len(answers):
            raise ConfigError(f"the script has only {len(answers)} answers for {name!r}")
        return answers[at]


def _later(backend: ScriptedBackend, call: Call, index: int, hear: Hear) -> Callable[[], None]:
    return lambda: backend._answer(call, index, hear)


def tokens_of(text: str) -> list[str]:
    """Cut a text into made-up tokens: words with the space before them, and line ends."""
    return re.findall(r"[^\S\n]*[^\s]+|\n|[^\S\n]+", text)


def _generate(call: GenCall, reply: str) -> tuple[GenOutput, list[str]]:
    params = call.params
    tokens = tokens_of(reply)
    finish: dict[str, Any] = {"type": "stop", "matched": None}
    if len(tokens) > params.max_new_tokens:
        tokens = tokens[: params.max_new_tokens]
        finish = {"type": "length"}
    text = "".join(tokens)
    found = [(text.find(stop), stop) for stop in params.stop if stop in text]
    if found:
        at, stop = min(found)
        finish = {"type": "stop", "matched": stop}
        tokens = _until(tokens, at + len(stop))
        text = text[: at + len(stop) if params.no_stop_trim else at]
    meta = {
        "prompt_tokens": len(tokens_of(call.prompt.text)),
        "completion_tokens": len(tokens),
        "finish_reason": finish,
    }
    output = GenOutput(
        (text,) * params.n, (meta,) * params.n, tuple(tokens) if call.pieces else None
    )
    return output, tokens_of(text)


def _until(tokens: Iterable[str], length: int) -> list[str]:
    """Return the tokens up to the one in which the length-th character lies."""
    kept: list[str] = []
    for token in tokens:
        if length <= 0:
            break
        kept.append(token)
        length -= len(token)
    return kept


def _select(call: SelectCall, reply: str) -> SelectOutput:
    if reply not in call.choices:
        raise ConfigError(f"the script answers {reply!r}, which is none of {list(call.choices)}")
    scores = [0.0 if choice == reply else -5.0 for choice in call.choices]
    return SelectOutput(
        tuple(
            ChoiceLogprobs(
                (score,),
                (score,) if call.tokenisations else (),
                (-1.0,) if call.unconditional else (),
            )
            for score in scores
        ),
        {"prompt_tokens": len(tokens_of(call.prompt.text))},
    )
