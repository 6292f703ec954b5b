"""EngineLoop: the one thread that owns Scheduler and Executor; all else talks to it by messages.

Imports schedule and types. Inbox: commands, taken between steps. Outbox: each request's listener is
called on the loop's thread with its deltas.
"""

import atexit
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from sgjax.errors import SgjaxError
from sgjax.schedule import Executor, Scheduler
from sgjax.types import Delta, Request

_LOG = logging.getLogger(__name__)

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
    """

    def __init__(self, scheduler: Scheduler, executor: Executor, settle_s: float = 0.0) -> None:
        self._settle_s = settle_s
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
        self._inbox.put(lambda: void(self._scheduler.abort(request_id)))

    def release_hint(self, hint_id: str, followers: int | None) -> None:
        """Stop expecting so many followers of a hint; None: all that were not submitted."""
        self._inbox.put(lambda: self._scheduler.release_hint(hint_id, followers))

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

    def stop(self) -> None:
        """End the thread after the step in flight; live requests hear that it stopped."""
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
        wait_s = self._settle_s if self._ended else 0.0
        self._ended = False
        while True:
            try:
                command = self._inbox.get(block or wait_s > 0, None if block else wait_s)
            except queue.Empty:
                if self._crash is None:
                    self._deliver(self._scheduler.take_events())
                return True
            if command is None:
                return False
            command()
            block, wait_s = False, self._settle_s

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
                continue
            try:
                self._scheduler.add(request)
                self._listeners[request.id] = listener
            except Exception as error:
                self._tell(request.id, listener, error)

    def _deliver(self, events: list[Delta]) -> None:
        for delta in events:
            last = delta.completion is not None
            listener = self._listeners.pop(delta.id) if last else self._listeners[delta.id]
            self._ended |= last
            self._tell(delta.id, listener, delta)

    def _fail_all(self, error: Exception) -> None:
        listeners, self._listeners = self._listeners, {}
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
