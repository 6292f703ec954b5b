"""An engine without a device: the real loop and scheduler over the simulator, for the language."""

import itertools
import time
from collections.abc import Callable
from typing import Any

from sgjax.cache import PagePool, TreeSpec, build_cache
from sgjax.cache.spec import LruSpec
from sgjax.engine.loop import EngineLoop
from sgjax.schedule import (
    AdaptiveGrowth,
    LeastProgress,
    Limits,
    Mixed,
    PageKeeper,
    Plan,
    Scheduler,
    SiblingsSpec,
    StepOutput,
    Strategies,
    build_policy,
    build_siblings,
)
from sgjax.schedule.spec import DeferSpec, LpmSpec
from sgjax.sim import SimExecutor, hashed_tokens, linear_cost
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.byte import ByteTokenizer
from sgjax.types import Delta, Request


class Recorder:
    """An executor that keeps the plans it is given."""

    kind = "sim"
    writes_first = True

    def __init__(self, inner: SimExecutor) -> None:
        self._inner = inner
        self.plans: list[Plan] = []

    def submit(self, plan: Plan) -> tuple[Plan, float]:
        self.plans.append(plan)
        return self._inner.submit(plan)

    def wait(self, ticket: tuple[Plan, float]) -> StepOutput:
        return self._inner.wait(ticket)

    def now(self) -> float:
        return self._inner.now()


class SimEngine:
    """Serves requests like `sgl.Engine`; its tokens are letters that depend on the prompt."""

    def __init__(
        self,
        pages: int = 4000,
        max_running: int = 32,
        siblings: SiblingsSpec | None = None,
        max_context_len: int = 2000,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.tokenizer = tokenizer or ByteTokenizer()
        pool = PagePool(pages + 1, 1)
        self.pages = PageKeeper(pool, build_cache(TreeSpec(), LruSpec(), pool))
        self.executor = Recorder(SimExecutor(hashed_tokens(123, 97), linear_cost(0.01, 0.001)))
        self.scheduler = Scheduler(
            pages=self.pages,
            strategies=Strategies(
                policy=build_policy(LpmSpec()),
                siblings=build_siblings(siblings or DeferSpec()),
                composition=Mixed(),
                growth=AdaptiveGrowth(0.7, 0.1, 600),
                retract=LeastProgress(),
            ),
            tokenizer=self.tokenizer,
            limits=Limits(max_running, 1024, 16, max_context_len),
            seed=0,
            now=self.executor.now,
            debug_checks=True,
        )
        self.requests: list[list[Request]] = []
        self._loop = EngineLoop(self.scheduler, self.executor)
        self._ids = itertools.count()

    def submit(
        self, requests: list[Request], hear: Callable[[int, Delta | Exception], None]
    ) -> None:
        self.requests.append(requests)
        self._loop.submit(
            [(r, lambda heard, i=i: hear(i, heard)) for i, r in enumerate(requests)]  # type: ignore[misc]
        )

    def new_id(self) -> str:
        return f"r{next(self._ids)}"

    def release_hint(self, hint_id: str, followers: int | None = None) -> None:
        self._loop.release_hint(hint_id, followers)

    def abort(self, rid: str) -> None:
        self._loop.abort(rid)

    def flush_cache(self) -> bool:
        return self._loop.call(self.scheduler.flush_cache)

    def get_server_info(self) -> dict[str, Any]:
        return {"computed_tokens": self.scheduler.stats.computed_tokens}

    def shutdown(self) -> None:
        self._loop.stop()

    def check_idle(self) -> None:
        """Verify that nothing leaks: no sequence holds pages, nothing is pinned.

        A hint may outlive the programs that announced it; it is given time to finish.
        """
        deadline = time.monotonic() + 10.0
        while self._loop.call(lambda: self.scheduler.has_work) and time.monotonic() < deadline:
            time.sleep(0.001)

        def check() -> None:
            counts = self.pages.pool.counts()
            assert not self.scheduler.has_work
            assert counts["sequence"] == 0
            assert counts["tree"] == self.pages.cache.num_evictable

        self._loop.call(check)
