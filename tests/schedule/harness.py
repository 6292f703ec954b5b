"""A scheduler on the simulator, driven step by step."""

import random
from dataclasses import dataclass, field

from sgjax.cache import CacheSpec, EvictionSpec, LruSpec, PagePool, TreeSpec, build_cache
from sgjax.schedule import (
    AdaptiveGrowth,
    AdmissionSpec,
    CompositionSpec,
    LeastProgress,
    Limits,
    PageKeeper,
    Plan,
    PolicySpec,
    Scheduler,
    SiblingsSpec,
    Strategies,
    build_composition,
    build_look,
    build_policy,
    build_siblings,
)
from sgjax.schedule.spec import AdmitSpec, FcfsSpec, InOrderSpec, MixedSpec
from sgjax.sim import SimExecutor, hashed_tokens, linear_cost
from sgjax.tokens.byte import ByteTokenizer
from sgjax.types import Completion, Delta, Request, SamplingParams
from tests.schedule.kv_memory import KvMemory

VOCAB = 60
"""Scripted tokens are printable bytes from 60 on and 60 of them, so texts are ASCII."""


@dataclass(frozen=True)
class Setup:
    """Sizes and strategies of a scheduler under test."""

    policy: PolicySpec = field(default_factory=FcfsSpec)
    siblings: SiblingsSpec = field(default_factory=AdmitSpec)
    cache: CacheSpec = field(default_factory=TreeSpec)
    eviction: EvictionSpec = field(default_factory=LruSpec)
    pages: int = 2000
    page_size: int = 1
    max_running: int = 8
    token_budget: int = 64
    block_tokens: int = 16
    max_context_len: int = 1000
    growth: float = 0.5
    newcomers_in_full: bool = False
    composition: CompositionSpec = field(default_factory=MixedSpec)
    admission: AdmissionSpec = field(default_factory=InOrderSpec)


class Bench:
    """A scheduler with its executor; collects plans, deltas and completions."""

    def __init__(self, setup: Setup | None = None, checks: bool = True) -> None:
        setup = setup or Setup()
        self._setup = setup
        pool = PagePool(setup.pages + 1, setup.page_size)
        cache = build_cache(setup.cache, setup.eviction, pool)
        self.pages = PageKeeper(pool, cache)
        self.executor = SimExecutor(hashed_tokens(60 + VOCAB, 60), linear_cost(0.02, 0.001))
        self.scheduler = Scheduler(
            pages=self.pages,
            strategies=Strategies(
                policy=build_policy(setup.policy),
                siblings=build_siblings(setup.siblings),
                composition=build_composition(setup.composition),
                growth=AdaptiveGrowth(
                    setup.growth,
                    min(0.1, setup.growth),
                    600,
                    newcomers_in_full=setup.newcomers_in_full,
                ),
                retract=LeastProgress(),
                look=build_look(setup.admission),
            ),
            tokenizer=ByteTokenizer(),
            limits=Limits(
                setup.max_running, setup.token_budget, setup.block_tokens, setup.max_context_len
            ),
            seed=0,
            now=self.executor.now,
            debug_checks=checks,
        )
        self.memory = KvMemory(pool.num_pages, pool.page_size)
        self._checks = checks
        self.plans: list[Plan] = []
        self.deltas: dict[str, list[Delta]] = {}
        self.done: dict[str, Completion] = {}

    def add(self, *requests: Request) -> None:
        """Enqueue requests."""
        for request in requests:
            self.scheduler.add(request)

    def step(self) -> Plan | None:
        """Plan, run and commit one step."""
        plan = self.scheduler.plan()
        if plan is None:
            self._hear(self.scheduler.take_events())
            return None
        self.plans.append(plan)
        if self._checks:
            self.check_shape(plan)
            self.memory.run(plan)
        self._hear(self.scheduler.commit(plan, self.executor.wait(self.executor.submit(plan))))
        return plan

    def run(self, limit: int = 5000) -> dict[str, Completion]:
        """Step until nothing is alive; return all completions so far."""
        for _ in range(limit):
            self._hear(self.scheduler.take_events())
            if not self.scheduler.has_work:
                self.check_idle()
                return self.done
            self.step()
        raise AssertionError(f"still alive after {limit} steps")

    def drain(self) -> None:
        """Step until nothing is alive, whatever is still pinned."""
        while self.scheduler.has_work:
            self.step()

    def check_shape(self, plan: Plan) -> None:
        """Verify what executors build on: single tokens first, whole blocks within the budget."""
        lengths = [row.num_tokens for row in plan.rows]
        assert plan.num_tokens == sum(lengths)
        assert len(plan.rows) <= self._setup.max_running
        singles = next((i for i, n in enumerate(lengths) if n > 1), len(lengths))
        assert min(lengths[singles:], default=2) > 1, "a single token behind an extend"
        block = self._setup.block_tokens
        charged = singles + sum(-(-n // block) * block for n in lengths[singles:])
        assert charged <= max(self._setup.token_budget, singles)

    def check_idle(self) -> None:
        """Verify architecture section 4's invariant for an idle engine: nothing leaks."""
        counts = self.pages.pool.counts()
        assert counts["sequence"] == 0
        assert counts["tree"] == self.pages.cache.num_pages == self.pages.cache.num_evictable

    def _hear(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            self.deltas.setdefault(delta.id, []).append(delta)
            if delta.completion is not None:
                assert delta.id not in self.done, "a request ended twice"
                self.done[delta.id] = delta.completion


def ask(name: str, tokens: tuple[int, ...], new: int = 8, **kwargs: object) -> Request:
    """Return a request for `new` tokens."""
    params = SamplingParams(max_new_tokens=new, ignore_eos=True)
    return Request(name, tokens, params, **kwargs)  # type: ignore[arg-type]


def words(rng: random.Random, count: int) -> tuple[int, ...]:
    """Return random prompt tokens."""
    return tuple(rng.randrange(60, 60 + VOCAB) for _ in range(count))


def family(rng: random.Random, count: int, shared: int, own: int) -> list[tuple[int, ...]]:
    """Return prompts with a common prefix."""
    prefix = words(rng, shared)
    return [prefix + words(rng, own) for _ in range(count)]
