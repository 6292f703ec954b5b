"""Parts: what every engine is made of, measured or simulated, and what it tells of itself.

HOST, no jax. Imports schedule, fsm, tokens, models.config and its neighbours. `build` and
`simulated` make one each.
"""

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any

from sgjax.engine.config import EngineConfig
from sgjax.engine.front import Front
from sgjax.engine.loop import EngineLoop
from sgjax.fsm.cache import GrammarCache
from sgjax.fsm.grammar import Grammar
from sgjax.fsm.kernels import Kernels
from sgjax.models.config import ModelConfig
from sgjax.schedule import PageKeeper, Scheduler
from sgjax.tokens.base import Tokenizer


@dataclass(frozen=True)
class Parts(abc.ABC):
    """An engine's parts; the scheduler and what runs its plans belong to the loop's thread.

    Attributes:
        config: resolved.
        model: the architecture.
        tokenizer: the model's.
        pages: pool and prefix cache.
        scheduler: plans and commits.
        grammars: compiles constraints.
        kernels: what it compiles them with.
        loop: runs steps.
        front: where requests go in: the loop, or what stands before it.
    """

    config: EngineConfig
    model: ModelConfig
    tokenizer: Tokenizer
    pages: PageKeeper
    scheduler: Scheduler
    grammars: GrammarCache[Grammar]
    kernels: Kernels
    loop: EngineLoop
    front: Front

    @abc.abstractmethod
    def device_info(self) -> dict[str, Any]:
        """Return what is known of the device and of what runs there."""

    @abc.abstractmethod
    def release(self) -> None:
        """Free the device's memory, and let other processes that run the same steps end.

        To be called when the loop has stopped.
        """

    def info(self) -> dict[str, Any]:
        """Return resolved config, device and counters (on the loop's thread)."""
        stats, times, pool = self.scheduler.stats, self.loop.times, self.pages.pool
        counts = pool.counts()
        return {
            "config": dataclasses.asdict(self.config),
            "model": dataclasses.asdict(self.model),
            **self.device_info(),
            "grammar_kernels": self.kernels.name,
            "grammars": dataclasses.asdict(self.grammars.stats),
            **dataclasses.asdict(stats),
            "cache_hit_rate": stats.cached_tokens / max(stats.prompt_tokens, 1),
            "mean_batch_size": stats.rows / max(stats.forward_passes, 1),
            "evicted_tokens": self.pages.evicted_pages * pool.page_size,
            "pages": {k: counts[k] for k in ("total", "free", "tree", "sequence")},
            "num_running": self.scheduler.num_running,
            "num_waiting": self.scheduler.num_waiting,
            "plan_s": times.plan_s,
            "device_s": times.device_s,
            "commit_s": times.commit_s,
            "cache_s": self.pages.cache_s,
        }
