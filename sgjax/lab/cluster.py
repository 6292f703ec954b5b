"""Cluster: data-parallel workers behind a router, simulated, as an engine that replays traces.

Imports the engine's simulated parts, sim, serve's router and the lab's metrics. All workers share
one virtual clock; each has its own scheduler, pool and prefix tree.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sgjax.engine.config import resolve
from sgjax.engine.simulated import SimulatedParts, build_simulated
from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.lab.metrics import COUNTERS
from sgjax.schedule import Scheduler
from sgjax.serve.router import CacheAwareSpec, EvictionReports, RouterSpec, build_router
from sgjax.sim import SimSpec
from sgjax.sim.replay import ANSWER, Served, Station
from sgjax.sim.together import serve_together
from sgjax.sim.trace import Arrival
from sgjax.tokens.base import Tokenizer
from sgjax.typed import FORBID_EXTRA
from sgjax.types import Delta, Request


@dataclass(frozen=True)
class ClusterSpec:
    """Data-parallel workers (simulated engines only).

    Attributes:
        workers: equal engines, each with the K/V room of one.
        router: who gets which request.
        collect_every_s: how often the router reads what the workers evicted, in virtual seconds.
    """

    __pydantic_config__ = FORBID_EXTRA
    workers: int
    router: RouterSpec = field(default_factory=CacheAwareSpec)
    collect_every_s: float = 1.0

    def __post_init__(self) -> None:
        if self.workers < 1 or self.collect_every_s < 0:
            raise ConfigError(f"cluster {self}: workers >= 1 and collect_every_s >= 0 are needed")


class Cluster:
    """Several simulated engines that serve a trace together; a `LabEngine`.

    Args:
        spec: how many, and the router.
        settings: of each worker, as `Engine` takes them.

    Raises:
        UnsupportedBackend: the workers are not simulated.
    """

    def __init__(self, spec: ClusterSpec, settings: Mapping[str, Any]) -> None:
        config = resolve(None, settings)
        if not isinstance(config.executor, SimSpec):
            raise UnsupportedBackend(
                "a cluster's workers share a virtual clock; use executor: {type: sim}"
            )
        self._spec = spec
        self._workers = [build_simulated(config, config.executor) for _ in range(spec.workers)]
        self._router = build_router(spec.router)
        self._reports = [EvictionReports(worker.pages.cache) for worker in self._workers]
        self._collected_s = 0.0

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the workers' tokenizer."""
        return self._workers[0].tokenizer

    def now(self) -> float:
        """Return the common virtual clock in seconds."""
        return max(worker.simulator.executor.now() for worker in self._workers)

    def replay(self, trace: Iterable[Arrival]) -> Served:
        """Serve a trace; requests that arrive at once are routed one after the other."""
        start_s = self.now()
        stations = [_station(worker, start_s) for worker in self._workers]

        def dispatch(arrival: Arrival) -> int:
            self._collect(arrival.time_s)
            loads = [_load(worker.scheduler) for worker in self._workers]
            return self._router.pick(np.asarray(arrival.tokens, np.int64), loads)

        served = serve_together(trace, stations, dispatch)
        self._collect(float("inf"))
        for worker in self._workers:
            worker.simulator.executor.advance_to(start_s + served.elapsed_s)
        return served

    def flush_cache(self) -> bool:
        """Empty all caches; the meta-tree learns of it like of any eviction."""
        flushed = [worker.scheduler.flush_cache() for worker in self._workers]
        self._collect(float("inf"))
        return all(flushed)

    def get_server_info(self) -> dict[str, Any]:
        """Return a worker's configuration and device, and all workers' counters added up."""
        infos = [worker.info() for worker in self._workers]
        sums = (*COUNTERS, "peak_pages", "evicted_tokens", "retractions")
        return {
            **infos[0],
            "device": f"{len(infos)} x {infos[0]['device']}",
            "config": {**infos[0]["config"], "cluster": dataclasses.asdict(self._spec)},
            "pages": {
                kind: sum(info["pages"][kind] for info in infos) for kind in infos[0]["pages"]
            },
            **{name: sum(info[name] for info in infos) for name in sums},
        }

    def shutdown(self) -> None:
        """Stop all workers."""
        for worker in self._workers:
            worker.loop.stop()

    def submit(
        self, requests: list[Request], hear: Callable[[int, Delta | Exception], None]
    ) -> None:
        """Refuse requests that come without a time of arrival."""
        raise UnsupportedBackend(
            "a simulated cluster replays traces and runs no programs; drop 'cluster' from the "
            "variant, or use a workload of type trace or families"
        )

    def new_id(self) -> str:
        """Return an id; `submit` refuses its request."""
        return "cluster"

    def release_hint(self, hint_id: str, followers: int | None = None) -> None:
        """Do nothing: there are no hints."""

    def hold_clock_while(self, busy: Callable[[], bool] | None) -> None:
        """Do nothing: no program can be busy."""

    def _collect(self, time_s: float) -> None:
        """Let the router hear of evictions, if it is time again."""
        if time_s - self._collected_s < self._spec.collect_every_s:
            return
        self._collected_s = 0.0 if time_s == float("inf") else time_s
        for worker, reports in enumerate(self._reports):
            for eviction in reports.take():
                self._router.forget(worker, eviction)


def _station(worker: SimulatedParts, start_s: float) -> Station:
    executor = worker.simulator.executor
    executor.say(lambda seq: ANSWER)
    executor.advance_to(start_s)
    return Station(worker.scheduler, executor, worker.simulator.cost)


def _load(scheduler: Scheduler) -> int:
    return scheduler.num_running + scheduler.num_waiting
