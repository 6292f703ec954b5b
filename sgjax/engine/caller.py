"""Caller: who called `generate`, from submitting the requests to the results.

HOST, no jax. Imports its neighbours and types. A thread waits or a task does, for the whole
or for each piece. Whoever leaves early aborts what is left.
"""

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

from sgjax.engine.front import Heard
from sgjax.engine.inputs import Call
from sgjax.engine.results import Result, Results
from sgjax.types import Request

if TYPE_CHECKING:
    from sgjax.engine.engine import Engine


class Caller:
    """One call, in one of four ways to hear of it.

    Args:
        engine: takes the requests, and lives as long as somebody waits for them.
        call: what is asked.
    """

    def __init__(self, engine: "Engine", call: Call) -> None:
        self._engine = engine
        self._call = call
        self._results = Results(call, engine.tokenizer)

    def wait(self) -> Result | list[Result]:
        """Return the results when all requests have ended."""
        for _ in self.stream():
            pass
        return self._results.whole()

    def stream(self) -> Iterator[Result]:
        """Submit when the first result is asked for; yield results so far."""
        inbox: queue.SimpleQueue[tuple[int, Heard]] = queue.SimpleQueue()
        try:
            self._submit(inbox.put)
            while self._results.alive:
                yield self._results.hear(*inbox.get())
        finally:
            self._abort_rest()

    async def wait_async(self) -> Result | list[Result]:
        """Return the results when all requests have ended, without blocking the event loop."""
        async for _ in self.stream_async():
            pass
        return self._results.whole()

    async def stream_async(self) -> AsyncIterator[Result]:
        """Submit when the first result is asked for; yield results so far."""
        loop = asyncio.get_running_loop()
        inbox: asyncio.Queue[tuple[int, Heard]] = asyncio.Queue()

        def put(heard: tuple[int, Heard]) -> None:
            try:
                loop.call_soon_threadsafe(inbox.put_nowait, heard)
            except RuntimeError:
                # The event loop was closed, so nobody waits for this any more.
                self._abort_rest()

        try:
            self._submit(put)
            while self._results.alive:
                yield self._results.hear(*await inbox.get())
        finally:
            self._abort_rest()

    def _submit(self, put: Callable[[tuple[int, Heard]], None]) -> None:
        good = [(i, r) for i, r in enumerate(self._call.requests) if isinstance(r, Request)]
        for i, refused in enumerate(self._call.requests):
            if not isinstance(refused, Request):
                put((i, refused))
        self._engine.submit([r for _, r in good], lambda at, heard: put((good[at][0], heard)))

    def _abort_rest(self) -> None:
        if self._results.alive:
            for request_id in self._call.ids:
                self._engine.abort(request_id)
