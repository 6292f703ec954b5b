"""Iterating over text as it comes."""

import asyncio
import threading
import time

import pytest

import sgjax as sgl
from tests.lang.sim_engine import SimEngine


@sgl.function
def program(s):  # type: ignore[no-untyped-def]
    s += "Q: " + sgl.gen("a") + " then " + sgl.select("b", ["yes", "no"]) + "."
    s += sgl.gen("c")


SCRIPT = {"a": "one two three", "b": "no", "c": "four five"}


def release_when_watched(state: sgl.ProgramState, backend: sgl.ScriptedBackend) -> None:
    while not state._stream.feed._watches:
        time.sleep(0.001)
    backend.release_answers()


def test_pieces_come_one_by_one_and_add_up_to_the_text() -> None:
    backend = sgl.ScriptedBackend(SCRIPT, hold=True)
    state = program.run(backend=backend, stream=True)
    threading.Thread(target=release_when_watched, args=(state, backend)).start()
    pieces = list(state.text_iter())
    assert "".join(pieces) == state.text() == "Q: one two three then no.four five"
    assert {" two", "no", " five"} <= set(pieces)


def test_one_variable_streams_alone_and_a_select_is_one_piece() -> None:
    state = program.run(backend=sgl.ScriptedBackend(SCRIPT, hold=False), stream=True)
    assert "".join(state.text_iter("a")) == "one two three"
    assert list(state.text_iter("b")) == ["no"]
    assert "".join(state.text_iter("c")) == "four five"


def test_pieces_arrive_before_the_generation_ends() -> None:
    backend = sgl.ScriptedBackend(SCRIPT, hold=True)
    state = program.run(backend=backend, stream=True)
    threading.Thread(target=release_when_watched, args=(state, backend)).start()
    assert list(state.text_iter("a")) == ["one", " two", " three"]


def test_async_iteration_gives_the_same() -> None:
    async def collect(var: str | None) -> str:
        state = program.run(backend=sgl.ScriptedBackend(SCRIPT), stream=True)
        return "".join([piece async for piece in state.text_async_iter(var)])

    assert asyncio.run(collect(None)) == "Q: one two three then no.four five"
    assert asyncio.run(collect("c")) == "four five"


def test_inside_the_program_iteration_ends_with_what_is_queued() -> None:
    seen = []

    @sgl.function
    def inner(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a")
        seen.append("".join(s.text_iter()))
        seen.append("".join(s.text_iter("a")))
        s += "y" + sgl.gen("a")
        seen.append("".join(s.text_iter("a")))

    inner.run(backend=sgl.ScriptedBackend({"a": ["one two", "three"]}))
    assert seen == ["xone two", "one two", "three"]


def test_a_run_without_streaming_can_be_iterated_too() -> None:
    state = program.run(backend=sgl.ScriptedBackend(SCRIPT))
    assert "".join(state.text_iter()) == state.text()
    assert list(state.text_iter("a")) == ["one two three"]


def test_every_fork_streams_by_itself() -> None:
    @sgl.function
    def forked(s):  # type: ignore[no-untyped-def]
        s += "x"
        group = s.fork(2)
        group += sgl.gen("a")
        assert ["".join(member.text_iter()) for member in group] == ["xone two three"] * 2

    forked.run(backend=sgl.ScriptedBackend(SCRIPT))


def test_a_fork_that_has_not_begun_streams_what_it_will_inherit() -> None:
    backend = sgl.ScriptedBackend(SCRIPT, hold=True)

    @sgl.function
    def forked(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a")
        group = s.fork(2)
        threading.Timer(0.05, backend.release_answers).start()
        assert "".join(group[0].text_iter()) == "xone two three"
        assert "".join(group[1].text_iter("a")) == "one two three"
        with pytest.raises(KeyError, match="'b' is not set"):
            list(group[1].text_iter("b"))

    forked.run(backend=backend)


def test_pieces_of_an_engine_add_up(engine: SimEngine) -> None:
    @sgl.function
    def short(s):  # type: ignore[no-untyped-def]
        s += "abc" + sgl.gen("a", max_tokens=12)

    state = short.run(backend=engine, stream=True)
    pieces = list(state.text_iter("a"))
    assert engine.requests[0][0].stream
    assert "".join(pieces) == state["a"]
