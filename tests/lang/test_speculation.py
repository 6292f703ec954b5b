"""API speculative execution: fewer requests, and never another value."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgjax as sgl
from sgjax.lang.backends.base import Answer, Backend, Call, GenCall, Hear, Prompt
from sgjax.lang.backends.forwarding import ForwardingBackend
from sgjax.lang.backends.scripted import tokens_of
from sgjax.lang.backends.speculative import after_literal, cut_value
from sgjax.types import SamplingParams
from tests.lang.api_server import serving

PAGE = "Ada Lovelace was a mathematician. " * 30


@sgl.function(num_api_spec_tokens=64)
def extract(s, page):  # type: ignore[no-untyped-def]
    s += page + "\nname:" + sgl.gen("name", stop="\n") + "\njob:" + sgl.gen("job", stop="\n")
    s += "\nborn:" + sgl.gen("born", stop="\n", max_tokens=3) + "\n"


FOLLOWED = " Ada\njob: mathematician\nborn: 10 December 1815\nmore:"


def model(written: str) -> Callable[[Call], str]:
    """Write `written` after "name:", and what is in order after any later text."""

    def write(call: Call) -> str:
        text = call.prompt.text
        if text.endswith("name:"):
            return written
        return {"job:": " clerk\nx", "born:": " 1800 or so\nx"}[text[text.rindex("\n") + 1 :]]

    return write


def test_a_followed_template_takes_one_request_for_three_fields() -> None:
    backend = sgl.ScriptedBackend(model(FOLLOWED))
    speculative = sgl.SpeculativeBackend(backend, 64)
    state = extract.run(page=PAGE, backend=speculative)
    assert (state["name"], state["job"], state["born"]) == (
        " Ada",
        " mathematician",
        " 10 December 1815",
    )
    assert len(backend.prompts) == 1
    usage = speculative.usage
    assert usage.requests == 1
    assert usage.used_tokens + usage.reused_tokens + usage.wasted_tokens == usage.completion_tokens
    assert usage.reused_tokens == len(tokens_of(" mathematician\n 10 December 1815"))
    assert state.get_meta_info("job")["speculated"]
    assert state.get_meta_info("born")["finish_reason"] == {"type": "length"}


def test_prompt_tokens_are_a_third_when_the_template_is_followed() -> None:
    plain_backend, backend = (sgl.ScriptedBackend(model(FOLLOWED)) for _ in range(2))
    plain = sgl.function(extract.func).run(page=PAGE, backend=plain_backend)
    fast = extract.run(page=PAGE, backend=backend)
    cost = [sum(len(tokens_of(p)) for p in b.prompts) for b in (plain_backend, backend)]
    assert cost[0] >= 2.9 * cost[1]
    assert plain["name"] == fast["name"]


@pytest.mark.parametrize(
    "written",
    [
        " Ada\nage: 36\njob: x\n",  # another field in between
        " Ada\njob:clerk\nborn",  # the surplus ends before the second value does
        " Ada\njob: mathem",  # cut by length within a value
        " Ada",  # the model ended
        " Ada\njobless: yes\n",  # the literal ends within a token
        " Ada or somebody who goes on and on without an end to it",
    ],
)
def test_values_are_those_without_speculation_when_the_template_is_not_followed(
    written: str,
) -> None:
    def consistent(call: Call) -> str:
        """A model that is a function of its prompt: it goes on with what it would have written."""
        assert isinstance(call, GenCall)
        text = call.prompt.text[call.prompt.text.index("name:") + 5 :]
        whole = written
        if whole.startswith(text):
            return whole[len(text) :]
        return " other\nthings: here\n"

    plain = sgl.function(extract.func).run(page=PAGE, backend=sgl.ScriptedBackend(consistent))
    fast = extract.run(page=PAGE, backend=sgl.ScriptedBackend(consistent))
    assert fast.text() == plain.text()


def test_length_is_counted_in_tokens_not_characters() -> None:
    params = SamplingParams(max_new_tokens=2, stop=("\n",))
    cut = cut_value((" incomprehensibilities", " and", " more", "\n"), params, False)
    assert cut is not None
    assert (cut.value, cut.tokens, cut.finish["type"]) == (
        " incomprehensibilities and",
        2,
        "length",
    )


def test_a_value_without_its_stop_is_not_taken_from_a_text_that_was_cut() -> None:
    params = SamplingParams(max_new_tokens=9, stop=("\n",))
    assert cut_value((" a", " b"), params, ended=False) is None
    assert cut_value((" a", " b"), params, ended=True) is not None


def test_a_literal_must_end_where_a_token_ends() -> None:
    assert after_literal(("\n", "job", ":", " x"), "\njob:") == (" x",)
    assert after_literal(("\n", "job: x"), "\njob:") is None
    assert after_literal(("\n", "jab", ":"), "\njob:") is None
    assert after_literal(("\n",), "\njob:") is None


PIECES = st.lists(st.text("ab\n:", min_size=1, max_size=3), max_size=12)


@settings(max_examples=200, deadline=None)
@given(
    pieces=PIECES,
    stops=st.lists(st.text("ab\n:", min_size=1, max_size=2), min_size=1, max_size=2),
    length=st.integers(1, 8),
)
def test_a_cut_value_is_what_a_model_server_would_have_returned(
    pieces: list[str], stops: list[str], length: int
) -> None:
    params = SamplingParams(max_new_tokens=length, stop=tuple(stops))
    cut = cut_value(pieces, params, ended=True)
    assert cut is not None
    # A server stops after the first token whose text holds a stop, at that stop.
    text = ""
    for piece in pieces[:length]:
        text += piece
        if any(stop in text for stop in stops):
            text = text[: min(text.index(stop) for stop in stops if stop in text)]
            break
    assert cut.value == text
    assert cut.value + "".join(cut.rest) == "".join(pieces)


def test_batches_and_forks_keep_their_states_apart() -> None:
    def write(call: Call) -> str:
        who = call.prompt.text.split()[0]
        return f" {who}\njob: {who}'s job\nborn: {who}'s year\n"

    backend = sgl.ScriptedBackend(write)
    states = extract.run_batch([{"page": f"p{i} text"} for i in range(30)], backend=backend)
    assert [s["job"] for s in states] == [f" p{i}'s job" for i in range(30)]
    assert len(backend.prompts) == 30

    @sgl.function(num_api_spec_tokens=64)
    def forked(s):  # type: ignore[no-untyped-def]
        s += "page"
        group = s.fork(2)
        for i, member in enumerate(group):
            member += f"\np{i}:" + sgl.gen("name", stop="\n") + "\njob:" + sgl.gen("job", stop="\n")
        group.join()

    backend.calls.clear()
    assert forked.run(backend=backend)["job"] == [" page's job"] * 2
    assert len(backend.prompts) == 2


@sgl.function(num_api_spec_tokens=64)
def chat_extract(s, page):  # type: ignore[no-untyped-def]
    s += sgl.user(page)
    s += sgl.assistant(
        "name:" + sgl.gen("name", stop="\n") + "\njob:" + sgl.gen("job") + sgl.gen("end")
    )


def test_a_chat_message_of_several_fields_takes_one_request() -> None:
    backend = sgl.ScriptedBackend(
        lambda call: "name: Ada\njob: mathematician", continues_messages=False
    )
    state = chat_extract.run(page=PAGE, backend=backend)
    assert (state["name"], state["job"], state["end"]) == (" Ada", " mathematician", "")
    assert len(backend.prompts) == 1


def test_a_chat_answer_that_does_not_follow_is_an_error_with_its_text() -> None:
    backend = sgl.ScriptedBackend(lambda call: "I am sorry.", continues_messages=False)
    with pytest.raises(sgl.ProgramError, match=r"wrote 'I am sorry\.', which does not begin"):
        chat_extract.run(page=PAGE, backend=backend)


def test_an_output_whose_tokens_are_unknown_is_asked_for_again_plainly() -> None:
    class Mute(Backend):
        """Hides the tokens of another backend's outputs."""

        def __init__(self, inner: Backend) -> None:
            self.inner = inner

        chat = property(lambda self: self.inner.chat)  # type: ignore[assignment]
        takes_hints = False  # type: ignore[assignment]
        continues_messages = True  # type: ignore[assignment]

        def submit(self, calls, hear):  # type: ignore[no-untyped-def]
            import dataclasses

            self.inner.submit([dataclasses.replace(c, pieces=False) for c in calls], hear)

        hint = release = flush_cache = get_server_info = None  # type: ignore[assignment]

    inner = sgl.ScriptedBackend(model(FOLLOWED))
    state = extract.run(page=PAGE, backend=Mute(inner))
    assert (state["name"], state["job"]) == (" Ada", " clerk")
    assert len(inner.prompts) == 6


def test_gens_that_cannot_be_cut_are_asked_plainly() -> None:
    backend = sgl.ScriptedBackend(lambda call: " x\ny")

    @sgl.function(num_api_spec_tokens=64)
    def program(s):  # type: ignore[no-untyped-def]
        s += "a" + sgl.gen("n", stop="\n", n=2) + sgl.gen("r", stop="\n", regex=".*")
        s += sgl.gen("open")

    program.run(backend=backend)
    asked = [c.call.params.stop for c in backend.calls if isinstance(c.call, GenCall)]
    assert asked == [("\n",), ("\n",), ()]


def test_speculation_works_through_the_official_client() -> None:
    pytest.importorskip("openai")
    with serving(lambda prompt: FOLLOWED) as server:
        backend = sgl.OpenAI("scripted", base_url=server.url, api_key="none")
        state = extract.run(page=PAGE, backend=backend)
        backend.close()
    assert (state["name"], state["job"]) == (" Ada", " mathematician")
    assert len(server.requests) == 1


def test_chat_speculation_works_through_the_official_client() -> None:
    pytest.importorskip("openai")
    with serving(lambda messages: "name: Ada\njob: mathematician") as server:
        backend = sgl.OpenAI("scripted", base_url=server.url, api_key="none")
        state = chat_extract.run(page=PAGE, backend=backend)
        backend.close()
    assert (state["name"], state["job"]) == (" Ada", " mathematician")
    assert len(server.requests) == 1


def test_an_inner_backend_that_takes_nothing_more_is_an_error_and_no_second_answer() -> None:
    class Gone(ForwardingBackend):
        def submit(self, calls: Sequence[Call], hear: Hear) -> None:
            raise sgl.SgjaxError("gone")

    heard: list[tuple[int, Answer]] = []
    backend = sgl.SpeculativeBackend(Gone(sgl.ScriptedBackend({})), 8)
    calls = [GenCall(Prompt("x"), SamplingParams(stop=("y",)), stream_id=i) for i in range(2)]
    backend.submit(calls, lambda index, answer: heard.append((index, answer)))
    assert [index for index, _ in heard] == [0, 1]
    assert all(isinstance(answer, sgl.SgjaxError) for _, answer in heard)
