"""run_batch: order, generators, threads, and the announced prefix."""

import threading
import time
from collections.abc import Sequence

import pytest

import sgjax as sgl
from sgjax.lang.backends.base import Backend, Call, Hear, Hint, Prompt
from sgjax.lang.backends.forwarding import ForwardingBackend
from tests.lang.sim_engine import SimEngine


@sgl.function
def ask(s, q, shots="Be brief. "):  # type: ignore[no-untyped-def]
    s += "You answer questions. " + shots
    s += "Q: " + q + " A: " + sgl.gen("a")


def rows(count: int) -> list[dict[str, str]]:
    return [{"q": f"q{i}"} for i in range(count)]


def test_results_come_in_the_order_of_the_arguments(backend: sgl.ScriptedBackend) -> None:
    states = ask.run_batch(rows(20), backend=backend, num_threads=3)
    assert [f"Q: q{i} A" in s.text() for i, s in enumerate(states)] == [True] * 20


def test_the_generator_yields_in_order_while_others_still_run() -> None:
    backend = sgl.ScriptedBackend(lambda call: "x", hold=True)
    states = ask.run_batch(rows(4), backend=backend, generator_style=True)
    threading.Timer(0.05, backend.release_answers).start()
    assert [s["a"] for s in states] == ["x"] * 4


def test_an_abandoned_generator_leaves_nothing_behind(backend: sgl.ScriptedBackend) -> None:
    states = ask.run_batch(rows(50), backend=backend, generator_style=True, num_threads=1)
    next(iter(states))
    states.close()  # type: ignore[attr-defined]


def test_a_progress_bar_counts_the_programs(
    backend: sgl.ScriptedBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    ask.run_batch(rows(3), backend=backend, progress_bar=True)
    assert "100%" in capsys.readouterr().out


def test_an_empty_batch_is_an_empty_list(backend: sgl.ScriptedBackend) -> None:
    assert ask.run_batch([], backend=backend) == []


def test_wrong_arguments_are_refused_before_anything_runs(backend: sgl.ScriptedBackend) -> None:
    with pytest.raises(sgl.ConfigError, match="got an unexpected keyword argument 'qq'"):
        ask.run_batch([{"q": "a"}, {"qq": "b"}], backend=backend)
    for row in ("a", ("a",), None):
        with pytest.raises(sgl.ConfigError, match="give a dict of arguments per program"):
            ask.run_batch([row], backend=backend)  # type: ignore[list-item]
    with pytest.raises(sgl.ConfigError, match="num_threads=0"):
        ask.run_batch(rows(2), backend=backend, num_threads=0)
    assert backend.calls == []


def test_a_thousand_programs_that_read_nothing_are_in_flight_with_few_threads() -> None:
    backend = sgl.ScriptedBackend(lambda call: "x", hold=True)
    before = threading.active_count()

    @sgl.function
    def forks_too(s, q):  # type: ignore[no-untyped-def]
        s += "Q: " + q + sgl.gen("a")
        group = s.fork(2)
        group += sgl.gen("b")
        group.join()

    states = forks_too.run_batch(rows(1000), backend=backend, generator_style=True)
    done = threading.Event()
    peak = 0

    def watch() -> None:
        nonlocal peak
        while not done.is_set() and len(backend.prompts) < 1000:
            peak = max(peak, threading.active_count())
            done.wait(0.01)
        backend.release_answers()

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert [s["b"] for s in states] == [["x", "x"]] * 1000
    done.set()
    watcher.join()
    assert len(backend.prompts) == 3000
    assert peak - before < 100


def test_the_constant_prefix_is_announced_once_to_all(backend: sgl.ScriptedBackend) -> None:
    ask.run_batch(rows(3), backend=backend)
    hint, *gens = backend.calls
    assert (hint.kind, hint.prompt, hint.followers) == (
        "hint",
        "You answer questions. Be brief. Q: ",
        3,
    )
    assert [c.after for c in gens] == [hint.hint] * 3


def test_arguments_that_are_equal_in_all_rows_belong_to_the_prefix(
    backend: sgl.ScriptedBackend,
) -> None:
    ask.run_batch([{**row, "shots": "Shots. "} for row in rows(2)], backend=backend)
    assert backend.calls[0].prompt == "You answer questions. Shots. Q: "


def test_chat_messages_belong_to_the_prefix(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def chat(s, q):  # type: ignore[no-untyped-def]
        s += sgl.system("Be kind.")
        with s.user():
            s += "Question: " + q
        s += sgl.assistant(sgl.gen("a"))

    states = chat.run_batch(rows(2), backend=backend)
    prefix = backend.calls[0].prompt
    assert prefix == "SYSTEM: Be kind.\nUSER: Question: "
    assert all(s.text().startswith(prefix) for s in states)


@pytest.mark.parametrize("use", ["if q == 'x': pass", "len(q)", "for c in q: pass", "s['v']"])
def test_the_prefix_ends_where_the_program_looks_at_data(
    backend: sgl.ScriptedBackend, use: str
) -> None:
    space: dict[str, object] = {"sgl": sgl}
    exec(f"def f(s, q):\n s += 'same '\n {use}\n s += 'different' + sgl.gen('v')", space)
    program = sgl.function(space["f"])  # type: ignore[arg-type]
    try:
        program.run_batch(rows(2), backend=backend)
    except sgl.BatchError:
        pass
    assert backend.calls[0].prompt == "same "


def test_a_batch_with_hints_off_announces_nothing(backend: sgl.ScriptedBackend) -> None:
    ask.run_batch(rows(3), backend=backend, fork=sgl.ParallelFork(hint=False))
    assert {c.kind for c in backend.calls} == {"gen"}


def test_the_prefix_is_computed_once_on_an_engine(engine: SimEngine) -> None:
    shots = "s" * 300
    ask.bind(shots=shots).run_batch(rows(8), backend=engine, max_new_tokens=4)
    computed = engine.get_server_info()["computed_tokens"]
    assert 300 < computed < 300 + 8 * 40
    engine.check_idle()


class Counting(ForwardingBackend):
    """Sums up who has something to do; its hints fail if they are told to."""

    def __init__(self, inner: Backend, deaf: bool = False) -> None:
        super().__init__(inner)
        self.busy = 0
        self._deaf = deaf
        self._lock = threading.Lock()

    def submit(self, calls: Sequence[Call], hear: Hear) -> None:
        self._inner.submit(calls, hear)

    def hint(self, prefix: Prompt, followers: int, after: Hint | None) -> Hint | None:
        if self._deaf:
            raise sgl.SgjaxError("no hints today")
        return self._inner.hint(prefix, followers, after)

    def active(self, change: int) -> None:
        with self._lock:
            self.busy += change


def test_a_batch_that_cannot_be_announced_leaves_nobody_busy(
    backend: sgl.ScriptedBackend,
) -> None:
    counting = Counting(backend, deaf=True)
    with pytest.raises(sgl.SgjaxError, match="no hints today"):
        ask.run_batch(rows(3), backend=counting)
    assert counting.busy == 0


def test_an_abandoned_batch_leaves_nobody_busy(backend: sgl.ScriptedBackend) -> None:
    counting = Counting(backend)
    go_on = threading.Event()

    @sgl.function
    def slow(s, q):  # type: ignore[no-untyped-def]
        s += q
        if q != "q0":
            go_on.wait(10)

    states = slow.run_batch(rows(9), backend=counting, num_threads=2, generator_style=True)
    next(states)
    states.close()  # type: ignore[attr-defined]
    assert counting.busy > 0
    go_on.set()
    deadline = time.monotonic() + 10
    while counting.busy and time.monotonic() < deadline:
        time.sleep(0.01)
    assert counting.busy == 0
