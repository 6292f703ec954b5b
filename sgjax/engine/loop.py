"""EngineLoop: the one thread that owns Scheduler and Executor; all else talks to it by messages.

Imports schedule, fsm and types. Inbox: commands, taken between steps. Outbox: each request's
listener is called on the loop's thread with its deltas.
"""

import atexit
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from sgjax.errors import ConfigError, RequestAborted, SgjaxError
from sgjax.fsm.cache import GrammarCache
from sgjax.fsm.grammar import Grammar
from sgjax.schedule import Executor, Scheduler
from sgjax.types import Delta, Request

_LOG = logging.getLogger(__name__)

POLL_S = 0.001
"""How often the loop asks whether those who keep it from its next step are still busy."""

T = TypeVar("T")
Listener = Callable[[Delta | Exception], None]


@dataclass
class LoopTimes:
    """Seconds spent, by part of the step."""

    plan_s: float = 0.0
    device_s: float = 0.0
    commit_s: float = 0.0


class EngineLoop:
    """Run steps while there is work; sleep on the inbox while there is none.

    Args:
        scheduler: plans and commits; touched by the loop's thread alone once this is made.
        executor: runs the plans; likewise.
        settle_s: seconds without a message to wait for before a step, after requests came or
            ended. A simulated step takes no time, so without a pause the virtual clock would run
            on while programs think about what they heard.
        grammars: compiles constraints beside the loop; who has one waits for it outside. Without
            it requests with constraints are refused.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        settle_s: float = 0.0,
        grammars: GrammarCache[Grammar] | None = None,
    ) -> None:
        self._grammars = grammars
        # Requests whose constraint is being compiled, by id.
        self._compiling: dict[str, tuple[Request, Listener]] = {}
        self._settle_s = settle_s
        self._busy: Callable[[], bool] | None = None
        self._ended = False
        self._scheduler = scheduler
        self._executor = executor
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._listeners: dict[str, Listener] = {}
        self._crash: SgjaxError | None = None
        self._stopped = False
        self._stopping = threading.Lock()
        self.times = LoopTimes()
        self._thread = threading.Thread(target=self._main, name="sgjax-engine", daemon=True)
        self._thread.start()
        # Python must not end under a step: the device's threads would take the process down.
        atexit.register(self.stop)

    def submit(self, requests: list[tuple[Request, Listener]]) -> None:
        """Enqueue requests together; each listener hears deltas, or the error that refused it.

        Raises:
            SgjaxError: the loop was stopped.
        """
        self._put(lambda: self._add(requests))

    def abort(self, request_id: str) -> None:
        """Abort a request; nothing happens if it is over, or the loop is stopped."""
        # Behind the stop mark nobody reads the inbox any more, so this may land there.
        self._inbox.put(lambda: self._abort(request_id))

    def release_hint(self, hint_id: str, followers: int | None) -> None:
        """Stop expecting so many followers of a hint; None: all that were not submitted."""
        self._inbox.put(lambda: self._scheduler.release_hint(hint_id, followers))

    def post(self, function: Callable[[], None]) -> None:
        """Run a function on the loop's thread, between two steps; an error in it ends the engine.

        Raises:
            SgjaxError: the loop was stopped.
        """
        self._put(function)

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the loop's thread, between two steps, and return its result."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

        if threading.current_thread() is self._thread:
            return function()
        self._put(run)
        return future.result()

    def now(self) -> float:
        """Return the executor's clock in seconds."""
        return self._executor.now()

    def hold_while(self, busy: Callable[[], bool] | None) -> None:
        """Begin no step while `busy()`, instead of waiting `settle_s`; None ends this."""

        def change() -> None:
            self._busy = busy

        self.call(change)

    def stop(self) -> None:
        """End the threads after the step in flight; live requests hear that it stopped."""
        with self._stopping:
            if not self._stopped:
                self._stopped = True
                self._inbox.put(None)
                atexit.unregister(self.stop)
        if threading.current_thread() is not self._thread:  # a listener may stop the loop
            self._thread.join()

    def _put(self, command: Callable[[], None]) -> None:
        # Under the lock nothing can slip in behind the stop mark, where nobody would answer it.
        with self._stopping:
            if self._stopped:
                raise SgjaxError("the engine was shut down; make a new one")
            self._inbox.put(command)

    def _main(self) -> None:
        while True:
            try:
                idle = self._crash is not None or not self._scheduler.has_work
                if not self._drain(block=idle):
                    self._fail_all(SgjaxError("the engine was shut down while the request ran"))
                    if self._grammars is not None:
                        self._grammars.close()
                    return
                if self._crash is None:
                    self._step()
            except Exception as error:
                # The pool may be half written: nothing after this can be trusted.
                if self._crash is None:
                    self._crash = _stopped_at(error)
                self._fail_all(self._crash)

    def _drain(self, block: bool) -> bool:
        """Run all commands that are there, at least one if `block`; return False to stop."""
        wait_s = self._settle_s if self._ended and self._busy is None else 0.0
        self._ended = False
        while True:
            # Asked before the inbox is looked at: what was put before they rest is found there.
            busy = self._busy is not None and self._busy()
            if busy:
                wait_s = POLL_S
            try:
                command = self._inbox.get(block or wait_s > 0, None if block else wait_s)
            except queue.Empty:
                if busy:
                    continue
                if self._crash is None:
                    self._deliver(self._scheduler.take_events())
                return True
            if command is None:
                return False
            command()
            block, wait_s = False, self._settle_s if self._busy is None else 0.0

    def _step(self) -> None:
        now = self._executor.now
        started_s = now()
        plan = self._scheduler.plan()
        planned_s = now()
        self.times.plan_s += planned_s - started_s
        if plan is None:
            self._deliver(self._scheduler.take_events())
            return
        out = self._executor.wait(self._executor.submit(plan))
        done_s = now()
        self.times.device_s += done_s - planned_s
        events = self._scheduler.commit(plan, out)
        self.times.commit_s += now() - done_s
        self._deliver(events)

    def _add(self, requests: list[tuple[Request, Listener]]) -> None:
        for request, listener in requests:
            if self._crash is not None:
                self._tell(request.id, listener, self._crash)
            elif request.constraint is None or self._grammars is None:
                self._enter(request, listener, None)
            elif request.id in self._compiling:
                error = ConfigError(f"request id {request.id!r} is in use; give each its own")
                self._tell(request.id, listener, error)
            else:
                future = self._grammars.request(request.constraint)
                if future.done():
                    self._enter(request, listener, future)
                else:
                    self._compiling[request.id] = (request, listener)
                    future.add_done_callback(lambda done, r=request: self._wake(r, done))  # type: ignore[misc]

    def _wake(self, request: Request, future: "Future[Grammar]") -> None:
        """Tell the loop, from a compiler's thread, that a request can go on."""
        # Behind the stop mark nobody reads the inbox, but then the listener has been told.
        self._inbox.put(lambda: self._compiled(request, future))

    def _compiled(self, request: Request, future: "Future[Grammar]") -> None:
        found = self._compiling.get(request.id)
        if found is not None and found[0] is request:  # else it was aborted meanwhile
            del self._compiling[request.id]
            self._enter(request, found[1], future)

    def _enter(
        self, request: Request, listener: Listener, future: "Future[Grammar] | None"
    ) -> None:
        try:
            if future is not None and future.exception() is not None:
                self._forgo(request)
            self._scheduler.add(request, None if future is None else future.result())
            self._listeners[request.id] = listener
        except Exception as error:
            self._tell(request.id, listener, error)

    def _abort(self, request_id: str) -> None:
        found = self._compiling.pop(request_id, None)
        if found is None:
            self._scheduler.abort(request_id)
            return
        request, listener = found
        self._forgo(request)
        error = RequestAborted(f"request {request_id!r} was aborted")
        self._tell(request_id, listener, error)

    def _forgo(self, request: Request) -> None:
        """Tell a request's hint that it will not come."""
        if request.after is not None:
            self._scheduler.release_hint(request.after, 1)

    def _deliver(self, events: list[Delta]) -> None:
        for delta in events:
            last = delta.completion is not None
            listener = self._listeners.pop(delta.id) if last else self._listeners[delta.id]
            self._ended |= last
            self._tell(delta.id, listener, delta)

    def _fail_all(self, error: Exception) -> None:
        listeners, self._listeners = self._listeners, {}
        compiling, self._compiling = self._compiling, {}
        listeners |= {name: listener for name, (_, listener) in compiling.items()}
        for request_id, listener in listeners.items():
            self._tell(request_id, listener, error)

    def _tell(self, request_id: str, listener: Listener, heard: Delta | Exception) -> None:
        """Call a listener; one that raises harms its own request only."""
        try:
            listener(heard)
        except Exception:
            _LOG.exception("the listener of request %r failed; the request is aborted", request_id)
            if self._listeners.get(request_id) is listener:
                self._listeners[request_id] = void
                self._scheduler.abort(request_id)


def _stopped_at(error: Exception) -> SgjaxError:
    crash = SgjaxError(
        f"the engine stopped at an error in a step, {type(error).__name__}: {error}; shut it down "
        "and make a new one"
    )
    crash.__cause__ = error
    return crash


def void(_: object) -> None:
    """Drop a result."""
