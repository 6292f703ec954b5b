"""Chat templates: whole conversations, and the same text put together role by role."""

import pytest

from sgjax.errors import ConfigError
from sgjax.tokens.chat import NAMED, ChatTemplate
from sgjax.tokens.fast import bind_template

# As published with SmolLM2-Instruct: brings a system message of its own.
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe nice<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# In the manner of Llama-2's: wraps the system message into the first question, wants turns.
WRAPPING = bind_template(
    "{% if messages[0]['role'] == 'system' %}{% set turns = messages[1:] %}"
    "{% set system = messages[0]['content'] %}{% else %}{% set turns = messages %}{% endif %}"
    "{% for m in turns %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' }}"
    "{% if loop.first and system %}{{ '<<SYS>>' + system + '<</SYS>>' }}{% endif %}"
    "{{ m['content'].strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + m['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    "<s>",
    "</s>",
)
assert WRAPPING
ALL = {**{name: name for name in NAMED}, "smollm2": SMOLLM2, "wrapping": WRAPPING}

CONVERSATIONS = [
    ["user"],
    ["system", "user"],
    ["user", "assistant", "user"],
    ["system", "user", "assistant", "user", "assistant", "user"],
]


@pytest.mark.parametrize("roles", CONVERSATIONS, ids="-".join)
@pytest.mark.parametrize("name", ALL)
def test_role_by_role_text_is_what_the_whole_template_renders(name: str, roles: list[str]) -> None:
    template = ChatTemplate(ALL[name])
    # An answer brings the space that separates it from the prompt, as a model's first token does.
    spaced = name in ("plain", "vicuna", "llama-2", "wrapping")
    text, messages, previous = "", [], None
    for i, role in enumerate(roles):
        content = f"content {i}"
        messages.append({"role": role, "content": content})
        answer = " " + content if role == "assistant" and spaced else content
        text += template.role_prefix(role, previous) + answer + template.role_suffix(role)
        previous = role
    assert text == template.render(messages, add_generation_prompt=False)
    asked = text + template.role_prefix("assistant", "user")
    assert asked == template.render(messages, add_generation_prompt=True)


def test_known_renderings() -> None:
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    expected = {
        "plain": "SYSTEM: S\nUSER: U\nASSISTANT:",
        "chatml": "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
        "<|im_start|>assistant\n",
        "llama-2": "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST]",
        "vicuna": "S USER: U ASSISTANT:",
    }
    for name, text in expected.items():
        assert ChatTemplate(name).render(messages, add_generation_prompt=True) == text


def test_the_first_prefix_brings_the_templates_own_system_message() -> None:
    template = ChatTemplate(SMOLLM2)
    assert template.role_prefix("user").startswith("<|im_start|>system\nBe nice<|im_end|>\n")
    assert template.role_prefix("user", "assistant") == "<|im_start|>user\n"


@pytest.mark.parametrize(
    ("name", "stop"),
    [("plain", "\nUSER:"), ("chatml", "<|im_end|>"), ("llama-2", "</s>"), ("vicuna", "</s>")],
)
def test_stop_strings_end_an_answer(name: str, stop: str) -> None:
    assert ChatTemplate(name).stop == (stop,)


def test_a_role_the_template_lacks_is_refused_with_those_it_has() -> None:
    template = ChatTemplate(WRAPPING)
    with pytest.raises(ConfigError, match="no role 'user' after 'user'"):
        template.role_prefix("user", "user")
    with pytest.raises(ConfigError, match="no role 'tool'; it has: user, system, assistant"):
        template.role_suffix("tool")


def test_what_a_template_refuses_is_a_config_error_with_its_reason() -> None:
    with pytest.raises(ConfigError, match="roles \\['assistant'\\]: roles must alternate"):
        ChatTemplate(WRAPPING).render(
            [{"role": "assistant", "content": "x"}], add_generation_prompt=False
        )


@pytest.mark.parametrize(
    ("source", "message"),
    [("chatlm", "unknown chat template 'chatlm'"), ("{% for", "not valid")],
)
def test_bad_sources_are_explained(source: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ChatTemplate(source)


def test_templates_run_in_a_sandbox() -> None:
    template = ChatTemplate("{{ messages.__class__.__mro__ }}{{ messages[0]['content'] }}")
    with pytest.raises(ConfigError, match="unsafe"):
        template.render([{"role": "user", "content": "x"}], add_generation_prompt=False)
