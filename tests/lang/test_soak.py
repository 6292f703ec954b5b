"""Many programs at once on the simulator, with failures: no hang, every error told, no page lost.

`SGJAX_SOAK_ROUNDS` sets the number of rounds; the suite runs a few.
"""

import asyncio
import faulthandler
import os
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import sgjax as sgl
from sgjax.lang.backends.base import (
    Answer,
    Backend,
    Call,
    ChatFormat,
    Hear,
    Hint,
    Prompt,
)
from sgjax.lang.backends.local import LocalBackend
from tests.lang.sim_engine import SimEngine

ROUNDS = int(os.environ.get("SGJAX_SOAK_ROUNDS", "6"))
PROGRAMS = 64
ROUND_LIMIT_S = 60.0


class InjectedError(Exception):
    """A failure put there by the test."""


class Failing(Backend):
    """Fails some calls of an inner backend, before they are sent or instead of their answer."""

    def __init__(self, inner: Backend, seed: int, rate: float) -> None:
        self.inner = inner
        self.injected: set[str] = set()
        self._random = random.Random(seed)
        self._rate = rate
        self._lock = threading.Lock()

    @property
    def chat(self) -> ChatFormat:
        return self.inner.chat

    @property
    def takes_hints(self) -> bool:
        return True

    @property
    def continues_messages(self) -> bool:
        return True

    def submit(self, calls: Sequence[Call], hear: Hear) -> None:
        with self._lock:
            kinds = [self._random.random() < self._rate for _ in calls]
            late = [self._random.random() < 0.5 for _ in calls]
        sent = [i for i, fails in enumerate(kinds) if not fails or late[i]]

        def heard(at: int, answer: Answer) -> None:
            index = sent[at]
            last = not hasattr(answer, "text")
            hear(index, self._error() if kinds[index] and last else answer)

        for index in set(range(len(calls))) - set(sent):
            if (hint := calls[index].after) is not None:
                self.inner.release(hint, 1)
            hear(index, self._error())
        if sent:
            self.inner.submit([calls[i] for i in sent], heard)

    def _error(self) -> InjectedError:
        with self._lock:
            name = f"#{len(self.injected)}#"
            self.injected.add(name)
        return InjectedError(name)

    def hint(self, prefix: Prompt, followers: int, after: Hint | None) -> Hint | None:
        return self.inner.hint(prefix, followers, after)

    def release(self, hint: Hint, followers: int) -> None:
        self.inner.release(hint, followers)

    def flush_cache(self) -> bool:
        return self.inner.flush_cache()

    def get_server_info(self) -> dict[str, Any]:
        return self.inner.get_server_info()


def act(s: Any, rng: random.Random, depth: int) -> None:
    """Do a few random things to a state."""
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(["text", "gen", "select", "fork", "read", "copy", "iter", "scope"])
        if kind == "text":
            s += "word " * rng.randint(1, 12)
        elif kind == "gen":
            s += "g:" + sgl.gen("g", max_tokens=rng.randint(1, 6))
        elif kind == "select":
            s += "c:" + sgl.select("c", ["yes", "no", "maybe"][: rng.randint(1, 3)])
        elif kind == "read":
            s["g"] if "g" in s else s.text()
        elif kind == "iter":
            list(s.text_iter())
        elif kind == "scope":
            with s.var_scope("v"):
                s += "v:" + sgl.gen("g", max_tokens=2)
        elif kind == "copy":
            with s.copy() as c:
                c += "side" + sgl.gen("side", max_tokens=2)
        elif depth < 2:
            group = s.fork(rng.randint(1, 4))
            for member in group:
                if rng.random() < 0.8:
                    act(member, rng, depth + 1)
            how = rng.choice(["gather", "append", "leave", "handle"])
            if how == "gather":
                group.join()
            elif how == "append":
                group.join("concate_and_append")
            elif how == "handle":
                for member in group:
                    try:
                        member.sync()
                    except sgl.ProgramError:
                        pass


@sgl.function
def program(s, number):  # type: ignore[no-untyped-def]
    s += "A common beginning. "
    act(s, random.Random(number), 0)
    s += "end" + sgl.gen("last", max_tokens=3)


def streamed(backend: Backend, seed: int, tell: Callable[[object], None]) -> None:
    async def collect() -> None:
        state = program.run(number=seed, backend=backend, stream=True)
        try:
            pieces = [piece async for piece in state.text_async_iter()]
            assert "".join(pieces) == state.text()
            tell(state)
        except sgl.ProgramError as error:
            tell(error)

    asyncio.run(collect())


def one_round(number: int) -> tuple[int, int]:
    """Run all programs at once; return how many failed, and how many failures were injected."""
    engine = SimEngine(pages=2500, max_running=24, max_context_len=1500)
    backend = Failing(LocalBackend(engine), number, rate=0.02 if number % 2 else 0.0)
    rows = [{"number": number * 1000 + i} for i in range(PROGRAMS - 8)]
    told: list[object] = []
    threads = [
        threading.Thread(target=streamed, args=(backend, number * 1000 + 900 + i, told.append))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    failed = 0
    try:
        states = program.run_batch(rows, backend=backend, num_threads=32)
    except sgl.BatchError as error:
        states = list(error.states)  # type: ignore[arg-type]
    for state in states:
        cause = state.error()
        if cause is None:
            assert state.text().endswith(state["last"])
        else:
            failed += 1
            assert any(name in str(cause) for name in backend.injected), cause
    for thread in threads:
        thread.join()
    assert len(told) == 8
    failed += sum(isinstance(entry, sgl.ProgramError) for entry in told)
    engine.check_idle()
    engine.shutdown()
    return failed, len(backend.injected)


def test_programs_with_forks_selects_streams_and_failures_never_hang_or_leak() -> None:
    total_failed = total_injected = 0
    for number in range(ROUNDS):
        faulthandler.dump_traceback_later(ROUND_LIMIT_S, exit=True)
        failed, injected = one_round(number)
        faulthandler.cancel_dump_traceback_later()
        assert failed <= injected
        total_failed += failed
        total_injected += injected
    print(f"{ROUNDS} rounds: {total_injected} failures injected, {total_failed} programs failed")
    assert total_failed > 0
