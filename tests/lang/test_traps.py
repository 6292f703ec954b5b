"""Traps that earlier releases of SGLang fell into (S01 to S16): what must hold instead."""

import pytest

import sgjax as sgl
from sgjax.lang.backends.base import Call, GenCall
from sgjax.lang.backends.speculative import cut_value
from sgjax.lang.compiler.graph import Graph
from sgjax.tokens.byte import ByteTokenizer
from sgjax.tokens.detokenize import OutputText
from sgjax.types import SamplingParams
from tests.lang.conftest import echo
from tests.lang.sim_engine import SimEngine


def gens(backend: sgl.ScriptedBackend) -> list[GenCall]:
    return [logged.call for logged in backend.calls if isinstance(logged.call, GenCall)]


@pytest.mark.parametrize("name", ["a", "b", "unknown"])
def test_s01_a_reader_of_a_failed_stream_gets_the_cause_and_never_hangs(name: str) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a") + sgl.gen("b")

    state = program.run(backend=sgl.ScriptedBackend({"a": RuntimeError("lost")}), stream=True)
    with pytest.raises(sgl.ProgramError, match="RuntimeError: lost"):
        state[name]
    with pytest.raises(sgl.ProgramError, match="RuntimeError: lost"):
        state.sync()
    with pytest.raises(sgl.ProgramError, match="RuntimeError: lost"):
        state.text()


def test_s02_a_failure_of_the_backend_is_raised_by_run_and_run_batch() -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a")

    backend = sgl.ScriptedBackend({"a": RuntimeError("down")})
    with pytest.raises(sgl.ProgramError, match="down"):
        program.run(backend=backend)
    with pytest.raises(sgl.BatchError, match="2 of 2 programs failed"):
        program.run_batch([{}, {}], backend=backend)


def test_s03_every_default_of_a_run_reaches_its_gens() -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a", max_tokens=5)

    given = {
        "min_new_tokens": 2,
        "stop": ("q",),
        "stop_token_ids": (7,),
        "temperature": 0.3,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.4,
        "repetition_penalty": 1.1,
        "ignore_eos": True,
        "regex": "a+",
    }
    backend = sgl.ScriptedBackend(echo)
    program.run(backend=backend, **given)  # type: ignore[arg-type]
    (call,) = gens(backend)
    assert call.params == SamplingParams(max_new_tokens=5, **given)  # type: ignore[arg-type]
    program.run(backend=backend, dtype=int, return_logprob=True, top_logprobs_num=3)
    call = gens(backend)[-1]
    assert call.params.regex == "[-+]?[0-9]+"
    assert (call.return_logprob, call.top_logprobs) == (True, 3)


def test_s04_the_callers_list_of_stops_stays_as_it_is() -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += sgl.user("x")
        s += sgl.assistant(sgl.gen("a", stop=stops))

    stops = ["END"]
    backend = sgl.ScriptedBackend(echo, chat="chatml")
    program.run(backend=backend)
    program.run(backend=backend)
    assert stops == ["END"]
    assert [call.params.stop for call in gens(backend)] == [("END", "<|im_end|>")] * 2


def spoken(call: Call) -> str:
    return " x\nb: y\nc: z\n"


def test_s05_bind_and_forks_keep_the_speculation() -> None:
    @sgl.function(num_api_spec_tokens=32)
    def program(s, a):  # type: ignore[no-untyped-def]
        s += a
        group = s.fork(2)
        group += "a:" + sgl.gen("a", stop="\n") + "\nb:" + sgl.gen("b", stop="\n")

    backend = sgl.ScriptedBackend(spoken)
    program.bind(a="p").run(backend=backend)
    assert [call.params.stop for call in gens(backend)] == [(), ()]
    assert len(gens(backend)) == 2


def test_s06_speculated_values_end_by_tokens_and_stops_and_have_meta_info() -> None:
    params = SamplingParams(max_new_tokens=3, stop=("\n",))
    longer_than_three_characters = cut_value((" many", " words", "\n"), params, False)
    assert longer_than_three_characters is not None
    assert longer_than_three_characters.value == " many words"
    assert cut_value((" cut", " short"), params, ended=False) is None

    @sgl.function(num_api_spec_tokens=32)
    def program(s):  # type: ignore[no-untyped-def]
        s += "a:" + sgl.gen("a", stop="\n") + "\nb:" + sgl.gen("b", stop="\n")

    state = program.run(backend=sgl.ScriptedBackend(spoken))
    for name in ("a", "b"):
        meta = state.get_meta_info(name)
        assert meta["finish_reason"] == {"type": "stop", "matched": "\n"}
        assert meta["completion_tokens"] == 2


def test_s07_chat_speculation_keeps_programs_apart_and_takes_any_stop() -> None:
    @sgl.function(num_api_spec_tokens=32)
    def program(s, q):  # type: ignore[no-untyped-def]
        s += sgl.user(q)
        s += sgl.assistant(
            "a:" + sgl.gen("a", stop=["\n", ";"]) + "\nb:" + sgl.gen("b", stop="\n") + sgl.gen("c")
        )

    def write(call: Call) -> str:
        who = call.prompt.messages[0]["content"]
        return f"a: {who}1\nb: {who}2\nthe end" if who != "bad" else f"a: {who}1\nc: what"

    backend = sgl.ScriptedBackend(write, continues_messages=False)
    rows = [{"q": f"p{i}"} for i in range(16)]
    states = program.run_batch(rows, backend=backend)
    assert [s["b"] for s in states] == [f" p{i}2" for i in range(16)]
    assert states[0]["c"] == "\nthe end"
    with pytest.raises(sgl.ProgramError, match="does not begin with"):
        program.run(q="bad", backend=backend)


def test_s08_joins_concatenate_on_an_engine_without_any_endpoint(engine: SimEngine) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "p"
        group = s.fork(2)
        group += lambda i: f"[{i}]" + sgl.gen("a", max_tokens=3)
        group.join("concate_and_append")
        s += sgl.gen("b", max_tokens=3)

    text = program.run(backend=engine).text()
    assert len(text) == 1 + 2 * 6 + 3
    assert text.startswith("p[0]")


def test_s09_joins_gather_what_members_wrote_whatever_was_there_before() -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "p" + sgl.gen("before")
        group = s.fork(3)
        group[0] += sgl.gen("before")
        group[2] += sgl.gen("before") + sgl.gen("some")
        group.join()
        assert s["before"] == ["<before>", None, "<before>"]
        assert s["some"] == [None, None, "<some>"]
        again = s.fork(2)
        again += sgl.gen("some")
        again.join()

    state = program.run(backend=sgl.ScriptedBackend(echo))
    assert state["some"] == ["<some>", "<some>"]
    assert state["before"] == ["<before>", None, "<before>"]


def test_s10_forks_inside_a_message_keep_its_beginning_and_its_images() -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += sgl.user_begin() + sgl.image("cat.png") + "look: "
        group = s.fork(2)
        for i, member in enumerate(group):
            member += f"{i}" + sgl.user_end()
            member += sgl.assistant(sgl.gen("a"))
            assert member.messages()[0]["content"] == f"look: {i}"

    backend = sgl.ScriptedBackend(echo)
    program.run(backend=backend)
    for call in gens(backend):
        (media,) = call.prompt.media
        assert (media.message, media.source.source) == (0, "cat.png")


def test_s11_programs_with_variable_scopes_can_be_traced() -> None:
    @sgl.function
    def program(s, a):  # type: ignore[no-untyped-def]
        with s.var_scope("v"):
            s += a
        s += "again " + s["v"]

    compiled = program.compile()
    assert compiled.run("x", backend=sgl.ScriptedBackend(echo)).text() == "xagain x"


def test_s12_every_expression_has_an_id_and_images_can_be_traced_and_printed() -> None:
    made = [sgl.image("a.png"), sgl.video("b.mp4", 4), sgl.gen("a"), "x" + sgl.gen("b")]
    assert len({expr.id for expr in made}) == len(made)  # type: ignore[attr-defined]

    @sgl.function
    def program(s, picture):  # type: ignore[no-untyped-def]
        s += sgl.image("a.png") + sgl.image(picture) + sgl.video("b.mp4", 4)

    graph = program.trace()
    assert "Image(a.png)" in str(graph)
    assert "Video(b.mp4)" in str(graph)
    assert Graph.from_json(graph.to_json()) == graph


def test_s13_penalties_reach_the_engine_and_scores_are_the_engines_own(
    engine: SimEngine,
) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a", max_tokens=2, frequency_penalty=0.5, presence_penalty=0.25)
        s += sgl.select("b", ["y", "no"])

    state = program.run(backend=engine)
    params = engine.requests[0][0].params
    assert (params.frequency_penalty, params.presence_penalty) == (0.5, 0.25)
    # The simulator's log-probabilities are 0: nothing may be added to them.
    assert state.get_meta_info("b")["choice_token_logprobs"] == [[0.0], [0.0, 0.0]]


def test_s14_a_stop_string_is_found_wherever_the_tokens_are_cut() -> None:
    text = "one STOP two"
    output = OutputText(ByteTokenizer(), SamplingParams(stop=("STOP",)))
    found = [output.append(byte) for byte in text[: text.index(" two")].encode()]
    assert found[-1] == "STOP"
    assert found[:-1] == [None] * (len(found) - 1)


def test_s15_chats_take_n_tell_why_they_ended_and_write_128_tokens_by_default() -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += sgl.user("x")
        s += sgl.assistant(sgl.gen("a", n=2))

    backend = sgl.ScriptedBackend(lambda call: "word " * 500)
    state = program.run(backend=backend)
    assert [m["finish_reason"] for m in state.get_meta_info("a")] == [{"type": "length"}] * 2
    assert gens(backend)[0].params.max_new_tokens == 128


def test_s16_compiled_programs_fork_speculate_format_and_refuse_data_dependent_branches() -> None:
    @sgl.function(num_api_spec_tokens=32)
    def program(s, topic):  # type: ignore[no-untyped-def]
        s += f"about {topic}:\n"
        group = s.fork(2)
        group += "a:" + sgl.gen("a", stop="\n") + "\nb:" + sgl.gen("b", stop="\n")
        group.join()

    backend = sgl.ScriptedBackend(spoken)
    state = program.compile().run("cats", backend=backend)
    assert state["b"] == [" y", " y"]
    assert len(gens(backend)) == 2
    assert backend.prompts[0] == "about cats:\na:"

    @sgl.function
    def branching(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a")
        if s["a"]:
            s += "always true while tracing"

    with pytest.raises(sgl.ProgramError, match="decides a branch"):
        branching.trace()
