"""PromptState: one prompt's text, messages and variables. Imports ir and the backend's records."""

from dataclasses import dataclass, field
from typing import Any, final

from sgjax.errors import ConfigError
from sgjax.lang.backends.base import ChatFormat, Media, Message, Prompt
from sgjax.lang.ir import Image, Video


@final
@dataclass
class PromptState:
    """A prompt and its variables: what a fork copies.

    Attributes:
        text: the prompt so far.
        messages: finished chat messages.
        role: role of the open message, or None.
        role_start: index into `text` where the open message's content begins.
        scopes: open variable scopes: (name, index into `text`).
        variables, meta: values and meta info by name.
        media: images and videos, by place.
    """

    text: str = ""
    messages: list[Message] = field(default_factory=list)
    role: str | None = None
    role_start: int = 0
    scopes: list[tuple[str, int]] = field(default_factory=list)
    variables: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    media: list[Media] = field(default_factory=list)

    def copy(self) -> "PromptState":
        return PromptState(
            self.text,
            list(self.messages),
            self.role,
            self.role_start,
            list(self.scopes),
            dict(self.variables),
            dict(self.meta),
            list(self.media),
        )

    def prompt(self) -> Prompt:
        """Return the prompt so far, as backends take it."""
        open_text = self.text[self.role_start :] if self.role is not None else ""
        return Prompt(self.text, tuple(self.messages), self.role, open_text, tuple(self.media))

    def add_media(self, source: Image | Video) -> None:
        """Let an image or a video stand where the text ends now."""
        start = 0 if self.role is None else self.role_start
        self.media.append(Media(len(self.text) - start, len(self.messages), source))

    def begin_role(self, role: str, chat: ChatFormat) -> str:
        """Open a message; return the text that was appended.

        Raises:
            ConfigError: another message is open.
        """
        if self.role is not None:
            raise ConfigError(
                f"a {role!r} message begins inside the {self.role!r} message; end that one first"
            )
        previous = self.messages[-1]["role"] if self.messages else None
        prefix = chat.role_prefix(role, previous)
        self.text += prefix
        self.role, self.role_start = role, len(self.text)
        return prefix

    def end_role(self, role: str, chat: ChatFormat) -> str:
        """Close the open message; return the text that was appended.

        Raises:
            ConfigError: no such message is open.
        """
        if self.role != role:
            raise ConfigError(f"a {role!r} message ends, but the open one is {self.role!r}")
        self.messages.append({"role": role, "content": self.text[self.role_start :]})
        self.role = None
        suffix = chat.role_suffix(role)
        self.text += suffix
        return suffix

    def end_scope(self, name: str) -> str:
        """Close a variable scope; return its text.

        Raises:
            ConfigError: no such scope is open.
        """
        for index in range(len(self.scopes) - 1, -1, -1):
            if self.scopes[index][0] == name:
                _, start = self.scopes.pop(index)
                return self.text[start:]
        raise ConfigError(f"variable scope {name!r} ends without having begun")

    def value_of(self, name: str) -> Any:
        """Return a variable.

        Raises:
            KeyError: it is not set.
        """
        if name not in self.variables:
            raise self.unknown(name)
        return self.variables[name]

    def unknown(self, name: str) -> KeyError:
        """Return the error for a variable that is not set."""
        known = ", ".join(sorted(self.variables)) or "none"
        return KeyError(f"variable {name!r} is not set; variables here: {known}")
