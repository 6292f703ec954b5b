"""run_unthreaded: the same states as run_batch, without a thread, so many programs at once."""

import threading

import pytest

import sgjax as sgl
from sgjax.errors import BatchError
from sgjax.lang.backends.base import Call, GenCall
from sgjax.lang.spec import ParallelFork
from sgjax.lang.unthreaded import run_unthreaded


@sgl.function
def ponder(s, q):  # type: ignore[no-untyped-def]
    s += "You answer questions. Q: " + q + " First: " + sgl.gen("first")
    for member in s.fork(2):
        member += " Then: " + sgl.gen("then")


def rows(count: int) -> list[dict[str, str]]:
    return [{"q": f"q{i}"} for i in range(count)]


def echo(call: Call) -> str:
    assert isinstance(call, GenCall)
    return f"<{call.prompt.text[-30:]}>"


def test_states_are_those_of_a_batch_with_threads_and_no_thread_is_started() -> None:
    threaded = ponder.run_batch(rows(6), backend=sgl.ScriptedBackend(echo))
    before = threading.active_count()
    backend = sgl.ScriptedBackend(echo)
    states = run_unthreaded(ponder, rows(6), backend=backend, fork=ParallelFork(), at_once=2)
    assert threading.active_count() == before
    assert [s.text() for s in states] == [s.text() for s in threaded]
    assert [c.kind for c in backend.calls].count("hint") == 7  # the batch's prefix, and six forks'


def test_no_more_programs_than_allowed_are_in_flight() -> None:
    backend = sgl.ScriptedBackend(lambda call: "x", hold=True)
    in_flight: list[int] = []

    def release() -> None:
        in_flight.append([c.kind for c in backend.calls].count("gen"))
        backend.release_answers()

    threading.Timer(0.05, release).start()
    states = run_unthreaded(ponder, rows(5), backend=backend, fork=ParallelFork(), at_once=2)
    assert (in_flight, len(states)) == ([2], 5)


def test_failed_programs_are_reported_when_all_have_ended_however_many() -> None:
    def answer(call: Call) -> str | Exception:
        assert isinstance(call, GenCall)
        return ValueError("no") if "q0 " not in call.prompt.text else "x"

    backend = sgl.ScriptedBackend(answer)
    with pytest.raises(BatchError, match="1999 of 2000 programs failed, first number 1"):
        run_unthreaded(ponder, rows(2000), backend=backend, fork=ParallelFork(), at_once=1)
