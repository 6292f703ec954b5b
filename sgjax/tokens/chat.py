"""Chat templates: how messages become text, as a whole or role by role.

HOST. Imports jinja2, errors. A template is Jinja source, the model's own or one of `NAMED`; what
stands before and after each role's text is found by rendering it with sentinels as messages.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
import jinja2.sandbox

from sgjax.errors import ConfigError

NAMED: Mapping[str, str] = {
    "plain": (
        "{% for m in messages %}{{ m['role'] | upper }}: {{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
    ),
    "chatml": (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "llama-2": (
        "{% for m in messages %}"
        "{% if m['role'] == 'system' %}<s>[INST] <<SYS>>\n{{ m['content'] }}\n<</SYS>>\n\n"
        "{% elif m['role'] == 'user' %}"
        "{% if loop.index0 == 0 or messages[loop.index0 - 1]['role'] != 'system' %}<s>[INST] "
        "{% endif %}{{ m['content'] }} [/INST]"
        "{% else %} {{ m['content'] }} </s>{% endif %}{% endfor %}"
    ),
    "vicuna": (
        "{% if messages[0]['role'] != 'system' %}A chat between a curious user and an artificial "
        "intelligence assistant. The assistant gives helpful, detailed, and polite answers to the "
        "user's questions. {% endif %}{% for m in messages %}"
        "{% if m['role'] == 'system' %}{{ m['content'] }} "
        "{% elif m['role'] == 'user' %}USER: {{ m['content'] }} "
        "{% else %}ASSISTANT: {{ m['content'] }}</s>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
    ),
}
"""Templates for models that bring none of their own."""

Message = Mapping[str, Any]


class ChatTemplate:
    """Turn messages into text.

    Args:
        source: a name of `NAMED`, or Jinja source.

    Raises:
        ConfigError: the source is no valid template, or the name is unknown.
    """

    def __init__(self, source: str) -> None:
        if source not in NAMED and "{" not in source:
            raise ConfigError(
                f"unknown chat template {source!r}; allowed: {', '.join(NAMED)}, or Jinja source"
            )
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _refuse
        try:
            self._template = environment.from_string(NAMED.get(source, source))
        except jinja2.TemplateError as error:
            raise ConfigError(f"the chat template is not valid: {error}") from None
        self._prefixes, self._suffixes = self._roles()

    @property
    def stop(self) -> tuple[str, ...]:
        """Return strings that end an assistant's answer where no end id does."""
        suffix = self._suffixes.get("assistant", "")
        if not suffix.strip():
            suffix = (suffix + self._prefixes.get(("user", "assistant"), "")).rstrip(" ")
        else:
            suffix = suffix.strip()
        return (suffix,) if suffix else ()

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        """Return a conversation's text.

        Args:
            messages: mappings with `role` and `content`, at least one.
            add_generation_prompt: end with what makes the model answer.

        Raises:
            ConfigError: the template refuses these messages.
        """
        try:
            return self._template.render(
                messages=list(messages), add_generation_prompt=add_generation_prompt, tools=None
            )
        except Exception as error:  # a template is a program; whatever it raises is its refusal
            roles = [m.get("role") for m in messages]
            raise ConfigError(
                f"the chat template refuses messages with roles {roles}: {error}"
            ) from None

    def role_prefix(self, role: str, previous: str | None = None) -> str:
        """Return the text before a message's content.

        Args:
            role: of the message.
            previous: role of the message before it; None at the start, where the text may bring
                the template's default system message.

        Raises:
            ConfigError: the template has no such role there.
        """
        try:
            return self._prefixes[role, previous]
        except KeyError:
            place = "at the start" if previous is None else f"after {previous!r}"
            raise ConfigError(
                f"the chat template has no role {role!r} {place}; it allows "
                + ", ".join(
                    f"{r!r} after {p!r}" if p else f"{r!r} first" for r, p in self._prefixes
                )
            ) from None

    def role_suffix(self, role: str) -> str:
        """Return the text after a message's content.

        Raises:
            ConfigError: the template has no such role.
        """
        try:
            return self._suffixes[role]
        except KeyError:
            raise ConfigError(
                f"the chat template has no role {role!r}; it has: {', '.join(self._suffixes)}"
            ) from None

    def _roles(self) -> tuple[dict[tuple[str, str | None], str], dict[str, str]]:
        """Find what stands around each role's text.

        A suffix is what follows a conversation's last message; a prefix is what stands before it,
        less the suffix of the one before. Templates may refuse some conversations; roles that occur
        in none they accept are left out.
        """
        prefixes: dict[tuple[str, str | None], str] = {}
        suffixes: dict[str, str] = {}
        for roles in _CONVERSATIONS:
            last, previous = roles[-1], roles[-2] if len(roles) > 1 else None
            messages = [{"role": role, "content": f"⟦{i}⟧"} for i, role in enumerate(roles)]
            try:
                text = self.render(messages, add_generation_prompt=False)
            except ConfigError:
                continue
            head, found, suffix = text.partition(messages[-1]["content"])
            if not found or (last, previous) in prefixes:
                continue
            if previous is not None:
                before, found, head = head.rpartition(messages[-2]["content"])
                if not found:
                    continue
                if previous not in suffixes:
                    # The template wraps both messages as one (Llama-2's system message).
                    prefixes[previous, None], suffixes[previous], head = before, head, ""
                head = head.removeprefix(suffixes[previous])
            if last == "assistant":
                head = self._answer_prefix(messages[:-1], head)
            prefixes[last, previous] = head
            suffixes.setdefault(last, suffix)
        return prefixes, suffixes

    def _answer_prefix(self, before: Sequence[Message], prefix: str) -> str:
        """Return what makes the model answer; a space at its end belongs to the answer's token."""
        if before:
            text = self.render(before, add_generation_prompt=False)
            asked = self.render(before, add_generation_prompt=True)
            if asked != text and asked.startswith(text):
                return asked[len(text) :]
        return prefix.rstrip(" ")


# Shortest first: the suffix of a role is needed before the prefix of what follows it.
_CONVERSATIONS = (
    ("system",),
    ("user",),
    ("assistant",),
    ("system", "user"),
    ("system", "assistant"),
    ("user", "user"),
    ("user", "assistant"),
    ("system", "user", "assistant"),
    ("user", "assistant", "user"),
    ("user", "assistant", "assistant"),
    ("user", "assistant", "system"),
    ("user", "system"),
)


class _RefusedError(Exception):
    """A template called `raise_exception`."""


def _refuse(message: str) -> NoReturn:
    raise _RefusedError(message)
