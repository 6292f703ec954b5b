"""What threads may do to a program while it ends or is read: no reader hangs, no text is lost."""

import threading
import time

import pytest

import sgjax as sgl
from sgjax.lang.backends.base import Answer, Call, Hear, Hint, Prompt
from sgjax.lang.backends.forwarding import ForwardingBackend
from tests.lang.conftest import echo


class SlowHints(ForwardingBackend):
    """Announce a prefix only when it is told to; whoever executes the fork is held up so long."""

    def __init__(self) -> None:
        super().__init__(sgl.ScriptedBackend(echo))
        self.asked, self.go_on = threading.Event(), threading.Event()

    def submit(self, calls: list[Call], hear: Hear) -> None:  # type: ignore[override]
        self._inner.submit(calls, hear)

    def hint(self, prefix: Prompt, followers: int, after: Hint | None) -> Hint | None:
        self.asked.set()
        assert self.go_on.wait(10)
        return self._inner.hint(prefix, followers, after)


def test_nothing_is_appended_once_the_function_has_returned_whatever_is_still_to_do() -> None:
    backend = SlowHints()

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "shared"
        threading.Thread(target=s.fork, args=(2,)).start()
        assert backend.asked.wait(10)

    state = program.run(backend=backend, stream=True)
    while state._program.author is not None or not backend.asked.is_set():
        time.sleep(0.001)
    with pytest.raises(sgl.ProgramError, match="the program has returned"):
        state += sgl.gen("late")
    backend.go_on.set()
    assert state.text() == "shared"


class WhenAllRest(ForwardingBackend):
    """Answer when no thread of the run has anything to do, as a simulated clock would."""

    def __init__(self) -> None:
        super().__init__(sgl.ScriptedBackend(echo))
        self._asked: list[tuple[Hear, int, Answer]] = []
        self._active = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._answer, daemon=True).start()

    def submit(self, calls: list[Call], hear: Hear) -> None:  # type: ignore[override]
        def keep(index: int, answer: Answer) -> None:
            with self._changed:
                self._asked.append((hear, index, answer))
                self._changed.notify()

        self._inner.submit(calls, keep)

    def active(self, change: int) -> None:
        with self._changed:
            self._active += change
            assert self._active >= 0
            self._changed.notify()

    def _answer(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._active and self._asked)
                hear, index, answer = self._asked.pop(0)
            hear(index, answer)


@pytest.mark.parametrize("stream", [False, True])
def test_a_function_that_iterates_over_text_rests_while_it_waits_for_more(stream: bool) -> None:
    heard = []

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a")
        heard.append("".join(s.text_iter("a")))
        s += "y" + sgl.gen("b")
        heard.append("".join(s.text_iter()))

    reader = threading.Thread(
        target=lambda: program.run(backend=WhenAllRest(), stream=stream).sync(), daemon=True
    )
    reader.start()
    reader.join(10)
    assert heard == ["<a>", "x<a>y<b>"]


@sgl.function
def inner(s):  # type: ignore[no-untyped-def]
    s += "in" + sgl.gen("i")
    s.set_var("j", s["i"] + "!")


def test_a_function_that_runs_other_programs_rests_while_it_waits_for_them() -> None:
    backend = WhenAllRest()
    heard = []

    @sgl.function
    def outer(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.gen("a")
        heard.append(inner.run(backend=backend)["j"])
        heard.extend(state["j"] for state in inner.run_batch([{}, {}], backend=backend))
        heard.append(inner.run(backend=backend, stream=True)["j"])
        s += sgl.gen("b")
        heard.append(s["b"])

    runner = threading.Thread(target=lambda: outer.run(backend=backend), daemon=True)
    runner.start()
    runner.join(10)
    assert heard == ["<i>!"] * 4 + ["<b>"]
