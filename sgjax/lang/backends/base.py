"""Backend: all that the language knows of a model, and the records it exchanges with one.

Imports types and errors. A backend never blocks its caller: it answers through `hear`, on any
thread.
"""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, final

from sgjax.types import SamplingParams

Message = dict[str, Any]


class ChatFormat(Protocol):
    """How chat messages become text."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Return strings that end an assistant's answer."""
        ...

    def role_prefix(self, role: str, previous: str | None = None) -> str:
        """Return the text before a message, given the role of the message before it."""
        ...

    def role_suffix(self, role: str) -> str:
        """Return the text after a message."""
        ...


@dataclass(frozen=True)
class Media:
    """An image or video in a prompt.

    Attributes:
        at: where it stands: index into its message's text, outside of messages the prompt's.
        message: index of the chat message it belongs to.
        source: an `ir.Image` or `ir.Video`.
    """

    at: int
    message: int
    source: Any


@dataclass(frozen=True)
class Prompt:
    """A prompt, as text for completion and as messages for chat.

    Attributes:
        text: everything so far, with the chat format's texts around messages.
        messages: finished messages.
        role: role of the message that is open, or None.
        open_text: the open message's text so far.
        media: images and videos, by place.
    """

    text: str
    messages: tuple[Message, ...] = ()
    role: str | None = None
    open_text: str = ""
    media: tuple[Media, ...] = ()


@final
class Hint:
    """A prefix that was announced; `Backend.hint` makes it, calls name it in `after`."""

    __slots__ = ("dead", "id")

    def __init__(self, hint_id: str) -> None:
        self.id = hint_id
        self.dead = False


@dataclass(frozen=True)
class GenCall:
    """Ask for a continuation.

    Attributes:
        prompt: what to continue.
        params: sampling and ending.
        name: the variable it is for, for logs and scripts.
        stream_id: the stream that asks, unique in the process; it has one call in flight at most.
        program: index, in its batch, of the program that asks.
        stream: deliver `Piece`s while it runs.
        return_logprob: report log-probabilities in the meta info.
        logprob_start: first prompt token whose log-probability is reported; -1 for none.
        top_logprobs: alternatives to report beside each.
        pieces: report the output's tokens as text (`GenOutput.pieces`).
        after: the hint that announced the prompt's prefix.
    """

    prompt: Prompt
    params: SamplingParams
    name: str | None = None
    stream_id: int = 0
    program: int = 0
    stream: bool = False
    return_logprob: bool = False
    logprob_start: int = -1
    top_logprobs: int = 0
    pieces: bool = False
    after: Hint | None = None


@dataclass(frozen=True)
class SelectCall:
    """Ask for the probabilities of several continuations.

    Attributes:
        prompt: what they continue.
        choices: the continuations.
        unconditional: also score them without the prompt.
        tokenisations: score every tokenisation of a choice, not only the tokenizer's own.
        name, stream_id, program, after: as in `GenCall`.
        hint: announce the prompt before the choices.
    """

    prompt: Prompt
    choices: tuple[str, ...]
    unconditional: bool = False
    tokenisations: bool = False
    name: str | None = None
    stream_id: int = 0
    program: int = 0
    hint: bool = True
    after: Hint | None = None


Call = GenCall | SelectCall


@dataclass(frozen=True)
class Piece:
    """Text of a running generation that is certain; all pieces add up to the output's text."""

    text: str


@dataclass(frozen=True)
class GenOutput:
    """A finished generation.

    Attributes:
        texts: one per sample (`SamplingParams.n`).
        meta: one meta info per sample.
        pieces: the first sample's tokens as texts that add up to its text before it was cut at a
            stop; None where they were not asked for or are not known.
    """

    texts: tuple[str, ...]
    meta: tuple[dict[str, Any], ...]
    pieces: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ChoiceLogprobs:
    """Log-probabilities of one choice's own tokens (natural log).

    Attributes:
        tokens: of the tokenizer's own tokenisation, given the prompt.
        tokenisations: total of each tokenisation, where they were asked for.
        unconditional: of the choice's tokens without a prompt, where asked for.
    """

    tokens: tuple[float, ...]
    tokenisations: tuple[float, ...] = ()
    unconditional: tuple[float, ...] = ()


@dataclass(frozen=True)
class SelectOutput:
    """Scores of a select's choices, in their order."""

    logprobs: tuple[ChoiceLogprobs, ...]
    meta: dict[str, Any] = field(default_factory=dict)


Answer = Piece | GenOutput | SelectOutput | Exception
Hear = Callable[[int, Answer], None]


class Backend(abc.ABC):
    """A model behind some interface."""

    @property
    @abc.abstractmethod
    def chat(self) -> ChatFormat:
        """Return how messages become text."""

    @property
    @abc.abstractmethod
    def takes_hints(self) -> bool:
        """Return whether announcing prefixes has any effect."""

    @property
    @abc.abstractmethod
    def continues_messages(self) -> bool:
        """Return whether a generation may continue a chat message that has begun."""

    @abc.abstractmethod
    def submit(self, calls: Sequence[Call], hear: Hear) -> None:
        """Start calls together, without blocking.

        Args:
            calls: what is asked.
            hear: called with a call's index and an answer, on any thread and possibly before this
                returns: any number of `Piece`s, then once the output or an error, and no more.

        Raises:
            Exception: anything, but only before the first answer: it fails all of the calls.
        """

    @abc.abstractmethod
    def hint(self, prefix: Prompt, followers: int, after: Hint | None) -> Hint | None:
        """Announce a prefix.

        Args:
            prefix: what the followers' prompts begin with.
            followers: number of calls (or hints) that will name the hint in `after`.
            after: a hint that announced a prefix of this prefix.

        Returns:
            The hint, or None where there is nothing to announce or nobody to tell; then `after` is
            not used up.
        """

    @abc.abstractmethod
    def release(self, hint: Hint, followers: int) -> None:
        """Stop expecting so many followers of a hint: they will never be submitted."""

    def active(self, change: int) -> None:
        """Hear that so many more (or fewer) threads of a run have something to do.

        A thread that waits for an answer has not. Backends whose clock is simulated may let it
        stand still while any has; others do not care.
        """
        del change

    @abc.abstractmethod
    def flush_cache(self) -> bool:
        """Drop cached prefixes; return whether it was done."""

    @abc.abstractmethod
    def get_server_info(self) -> dict[str, Any]:
        """Return what is known of the model's server."""
