"""The terminal chat: what is sent, what is kept, and how it ends."""

import pytest
from rich.console import Console

from sgjax.chat import Chat, choose_template, converse
from sgjax.errors import ConfigError, PromptTooLong
from sgjax.tokens.chat import ChatTemplate


class ScriptedEngine:
    """Answers 'answer N' piece by piece; raises what the script has for that turn instead."""

    def __init__(self, *script):
        self.script = list(script)
        self.prompts = []
        self.open_streams = 0

    def generate(self, *, prompt, sampling_params, stream):
        assert stream
        self.prompts.append(prompt)
        return self._stream(
            f"answer {len(self.prompts)}", self.script.pop(0) if self.script else None
        )

    def _stream(self, answer, failure):
        self.open_streams += 1
        try:
            for end in (3, len(answer)):
                yield {"text": answer[:end], "meta_info": self._meta(end)}
                if failure is not None:
                    raise failure
        finally:
            self.open_streams -= 1

    def _meta(self, count):
        return {"completion_tokens": count, "cached_tokens": 4, "prompt_tokens": 9}


def chat_with(engine, system=None):
    return Chat(engine, ChatTemplate("plain"), system, {"max_new_tokens": 8})


def screen(tmp_path, chat, *lines):
    """Converse with what a user types; a line that is an exception is raised at the prompt."""

    class Typed(Console):
        def input(self, *arguments, **options):
            line = typed.pop(0) if typed else EOFError()
            if isinstance(line, BaseException):
                raise line
            return line

    typed = list(lines)
    with open(tmp_path / "screen.txt", "w+") as file:
        converse(chat, Typed(file=file, width=100))
        file.seek(0)
        return file.read()


def test_pieces_add_up_to_the_answer():
    assert list(chat_with(ScriptedEngine()).ask("hello")) == ["ans", "wer 1"]


def test_each_turn_sends_the_conversation_so_far():
    engine = ScriptedEngine()
    chat = chat_with(engine, system="be brief")
    for text in ("one", "two"):
        list(chat.ask(text))
    assert engine.prompts == [
        "SYSTEM: be brief\nUSER: one\nASSISTANT:",
        "SYSTEM: be brief\nUSER: one\nASSISTANT: answer 1\nUSER: two\nASSISTANT:",
    ]


def test_an_answer_that_is_broken_off_is_kept_as_far_as_it_came():
    engine = ScriptedEngine()
    chat = chat_with(engine)
    pieces = chat.ask("one")
    next(pieces)
    pieces.close()
    assert engine.open_streams == 0
    list(chat.ask("two"))
    assert engine.prompts[1] == "USER: one\nASSISTANT: ans\nUSER: two\nASSISTANT:"


def test_a_message_that_is_refused_is_forgotten():
    engine = ScriptedEngine(PromptTooLong("too long"))
    chat = chat_with(engine)
    with pytest.raises(PromptTooLong):
        list(chat.ask("one"))
    list(chat.ask("two"))
    assert engine.prompts[1] == "USER: two\nASSISTANT:"


def test_the_screen_shows_answers_and_what_came_from_the_cache(tmp_path):
    text = screen(tmp_path, chat_with(ScriptedEngine()), "hello", "", "again")
    assert "answer 1\n" in text
    assert "answer 2\n" in text
    assert "4 of 9 prompt tokens from the cache" in text


def test_ctrl_c_stops_the_answer_but_not_the_chat(tmp_path):
    engine = ScriptedEngine(KeyboardInterrupt())
    text = screen(tmp_path, chat_with(engine), "hello", "again")
    assert "ans (stopped)" in text
    assert "answer 2" in text
    assert engine.open_streams == 0


def test_ctrl_c_at_the_prompt_ends_the_chat(tmp_path):
    engine = ScriptedEngine()
    screen(tmp_path, chat_with(engine), KeyboardInterrupt(), "never sent")
    assert engine.prompts == []


def test_an_error_is_shown_and_the_chat_goes_on(tmp_path):
    text = screen(tmp_path, chat_with(ScriptedEngine(PromptTooLong("too long"))), "one", "two")
    assert "PromptTooLong: too long" in text
    assert "answer 2" in text


class Templated:
    chat_template = None


def test_a_model_without_a_template_needs_one_to_be_named():
    with pytest.raises(ConfigError, match="chatml"):
        choose_template(Templated(), None)
    template = choose_template(Templated(), "chatml")
    assert template.stop == ("<|im_end|>",)
