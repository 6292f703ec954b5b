"""A chat in the terminal through an engine. Imports tokens, rich and `errors`.

Every turn sends the whole conversation again; what is shared with the turns before comes from the
engine's prefix cache.
"""

import time
from collections.abc import Generator
from typing import Any, Protocol

from rich.console import Console

from sgjax.errors import ConfigError, SgjaxError
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.chat import NAMED, ChatTemplate


class ChatEngine(Protocol):
    """The part of `sgjax.Engine` that a chat uses."""

    def generate(self, *, prompt: str, sampling_params: dict[str, Any], stream: bool) -> Any:
        """Return an iterator of partial results, each with the whole text so far."""
        ...


class Chat:
    """A conversation.

    Args:
        engine: answers.
        template: turns messages into the prompt.
        system: the system message, or None.
        sampling: sampling parameters of the answers.
    """

    def __init__(
        self,
        engine: ChatEngine,
        template: ChatTemplate,
        system: str | None,
        sampling: dict[str, Any],
    ) -> None:
        self._engine = engine
        self._template = template
        self._sampling = {**sampling, "stop": list(template.stop)}
        self._messages = [] if system is None else [{"role": "system", "content": system}]
        self.last_meta: dict[str, Any] = {}

    def ask(self, text: str) -> Generator[str, None, None]:
        """Yield the answer to a message piece by piece.

        An answer that is broken off is kept as far as it came; a message that is refused is
        forgotten.
        """
        messages = [*self._messages, {"role": "user", "content": text}]
        answer, refused = "", False
        try:
            prompt = self._template.render(messages, add_generation_prompt=True)
            parts = self._engine.generate(
                prompt=prompt, sampling_params=self._sampling, stream=True
            )
            for part in parts:
                new, answer = part["text"][len(answer) :], part["text"]
                self.last_meta = part["meta_info"]
                yield new
        except SgjaxError:
            refused = True
            raise
        finally:
            if not refused:
                self._messages = [*messages, {"role": "assistant", "content": answer}]


def choose_template(tokenizer: Tokenizer, name: str | None) -> ChatTemplate:
    """Return the named template, or the model's own.

    Raises:
        ConfigError: the name is unknown, or none is given and the model has none.
    """
    source = tokenizer.chat_template if name is None else name
    if source is None:
        raise ConfigError(f"the model has no chat template; choose one: {', '.join(NAMED)}")
    return ChatTemplate(source)


def converse(chat: Chat, console: Console) -> None:
    """Read messages and print answers until the input ends."""
    console.print("Ctrl-C stops an answer, Ctrl-D ends the chat.", style="dim")
    while True:
        try:
            text = console.input("[bold]you>[/] ").strip()
        except (EOFError, KeyboardInterrupt):
            console.print()
            return
        if text:
            _answer(chat, text, console)


def _answer(chat: Chat, text: str, console: Console) -> None:
    begin = time.perf_counter()
    pieces = chat.ask(text)
    try:
        for piece in pieces:
            console.print(piece, end="", markup=False, highlight=False, soft_wrap=True)
        console.print()
        footer = _footer(chat.last_meta, time.perf_counter() - begin)
        console.print(footer, style="dim", highlight=False)
    except KeyboardInterrupt:
        console.print(" (stopped)", style="dim")
    except SgjaxError as error:
        console.print(f"{type(error).__name__}: {error}", style="red", markup=False)
    finally:
        pieces.close()


def _footer(meta: dict[str, Any], seconds: float) -> str:
    count = meta["completion_tokens"]
    return (
        f"{count} tokens, {count / seconds:.1f} tokens/s; {meta['cached_tokens']} of "
        f"{meta['prompt_tokens']} prompt tokens from the cache"
    )
