"""replay: serve a trace on a simulated device, arrivals on its virtual clock.

HOST. Imports schedule, cache, models.config, types and its neighbours. One thread, no engine: the
scheduler, cache and policies are the real ones, what they decide is exact, only time is modelled.
Answers are of known length; their tokens are all the same, so equal prompts have equal answers.
"""

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sgjax.cache import (
    CacheSpec,
    EvictionOrder,
    EvictionSpec,
    LruSpec,
    PagePool,
    PrefixCache,
    RadixTree,
    TreeSpec,
    build_cache,
)
from sgjax.errors import ConfigError, PromptTooLong
from sgjax.schedule import (
    AdmissionSpec,
    CompositionSpec,
    GrowthSpec,
    LeastProgress,
    Limits,
    PageKeeper,
    Policy,
    PolicySpec,
    Scheduler,
    SchedulerStats,
    SiblingsSpec,
    Strategies,
    build_composition,
    build_growth,
    build_look,
    build_policy,
    build_siblings,
)
from sgjax.schedule.spec import DeferSpec, InOrderSpec, LpmSpec, MixedSpec
from sgjax.sim.executor import SimExecutor
from sgjax.sim.roofline import Roofline
from sgjax.sim.trace import Arrival
from sgjax.types import Delta, FinishKind, Request, SamplingParams

ANSWER = 32
"""The token that all answers consist of: a space, where anybody asks."""

ANY_ID = 1 << 62
"""Traces make up token ids, and nothing computes with them: only the keys' 64 bits limit them."""


@dataclass(frozen=True)
class ReplayConfig:
    """Sizes and strategies of the engine that serves a trace.

    Attributes:
        kv_tokens: tokens the K/V pool holds.
        page_size: S; a trace of 512-token blocks loses nothing with pages of 512.
        max_running, token_budget, max_context_len: limits of a step and a sequence.
        cache, eviction, policy, siblings, composition, admission, growth: as in the engine's
            configuration.
        seed: of nothing but the random policies.
    """

    kv_tokens: int
    page_size: int = 512
    max_running: int = 256
    token_budget: int = 8192
    max_context_len: int = 1 << 18
    cache: CacheSpec = field(default_factory=TreeSpec)
    eviction: EvictionSpec = field(default_factory=LruSpec)
    policy: PolicySpec = field(default_factory=LpmSpec)
    siblings: SiblingsSpec = field(default_factory=DeferSpec)
    composition: CompositionSpec = field(default_factory=MixedSpec)
    admission: AdmissionSpec = field(default_factory=InOrderSpec)
    growth: GrowthSpec = field(default_factory=GrowthSpec)
    seed: int = 0


@dataclass(frozen=True)
class Served:
    """How a trace was served; arrays hold one entry a request, in order of arrival.

    Attributes:
        stats: the scheduler's counters.
        elapsed_s: from the trace's beginning to the last end.
        arrived_s: arrivals, seconds from the trace's beginning.
        queued_s: seconds from arrival to admission.
        ttft_s: seconds from arrival to the first output token.
        e2e_s: seconds from arrival to the end; NaN where a request was refused.
        prompt_tokens, cached_tokens, output_tokens: of each request.
        families: whose each request is.
        refused: requests that the pool or the context cannot hold.
    """

    stats: SchedulerStats
    elapsed_s: float
    arrived_s: NDArray[np.float64]
    queued_s: NDArray[np.float64]
    ttft_s: NDArray[np.float64]
    e2e_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    cached_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    families: list[str]
    refused: int

    @property
    def hit_rate(self) -> float:
        """Return cached prompt tokens / prompt tokens, over the requests that were served."""
        served = ~np.isnan(self.e2e_s)
        return float(self.cached_tokens.sum() / max(self.prompt_tokens[served].sum(), 1))


def replay(
    trace: Iterable[Arrival],
    config: ReplayConfig,
    cost: Roofline,
    macro_steps: bool = True,
    policy: Policy | None = None,
    order: EvictionOrder | None = None,
) -> Served:
    """Serve a trace.

    Args:
        trace: requests by time of arrival; it is read as time goes on.
        config: the engine.
        cost: seconds a step takes.
        macro_steps: take as many decode steps at once as leave the scheduler nothing to decide.
            The result is the same, to the last bit, as step by step.
        policy: a policy of your own instead of the one that `config` names.
        order: an eviction order of your own, on the radix tree.

    Raises:
        ConfigError: `order` is given, but the cache that `config` names is no radix tree.
    """
    pool = PagePool(1 + -(-config.kv_tokens // config.page_size), config.page_size)
    if order is not None and config.cache != TreeSpec():
        raise ConfigError(
            f"an eviction order was given, but cache={config.cache}; use a plain tree"
        )
    cache: PrefixCache = (
        RadixTree(pool, order)
        if order is not None
        else build_cache(config.cache, config.eviction, pool, config.seed)
    )
    pages = PageKeeper(pool, cache)
    executor = SimExecutor(lambda seq: ANSWER, cost)
    scheduler = Scheduler(
        pages=pages,
        strategies=Strategies(
            policy=policy or build_policy(config.policy, config.seed),
            siblings=build_siblings(config.siblings),
            composition=build_composition(config.composition),
            growth=build_growth(config.growth),
            retract=LeastProgress(),
            look=build_look(config.admission),
        ),
        tokenizer=NoText(),
        limits=Limits(config.max_running, config.token_budget, 16, config.max_context_len, ANY_ID),
        seed=config.seed,
        now=executor.now,
    )
    return drive(trace, scheduler, executor, cost if macro_steps else None)


def drive(
    trace: Iterable[Arrival],
    scheduler: Scheduler,
    executor: SimExecutor,
    macro_cost: Roofline | None,
) -> Served:
    """Serve a trace on a scheduler that has nothing else to do.

    Args:
        trace: requests by time of arrival, counted from now on the executor's clock.
        scheduler: plans and commits.
        executor: runs the plans; its answers are of `ANSWER` meanwhile.
        macro_cost: the executor's own cost, for macro-steps; None goes step by step.
    """
    before = executor.say(lambda seq: ANSWER)
    try:
        station = Station(scheduler, executor, macro_cost)
        for arrival in trace:
            station.run_until(arrival.time_s)
            station.add(arrival)
        station.run_until(math.inf)
        return station.served()
    finally:
        executor.say(before)


class NoText:
    """A tokenizer for requests whose text nobody reads."""

    vocab_size = 2**31
    bos_id = None
    end_ids: frozenset[int] = frozenset()
    special_ids: frozenset[int] = frozenset()
    chat_template = None
    fingerprint = "no-text"
    strips_leading_space = False

    def encode(self, text: str, *, add_bos: bool = False) -> list[int]:
        """Return nothing."""
        del text, add_bos
        return []

    def decode(self, ids: object, *, skip_special: bool = True) -> str:
        """Return nothing."""
        del ids, skip_special
        return ""

    def token_bytes(self, token_id: int) -> bytes:
        """Return nothing."""
        del token_id
        return b""


class Station:
    """A scheduler on its virtual clock that serves requests, and what became of each.

    Args:
        scheduler: plans and commits; it has nothing else to do.
        executor: runs the plans; it must answer with `ANSWER`.
        macro_cost: the executor's own cost, for macro-steps; None goes step by step.
    """

    def __init__(
        self, scheduler: Scheduler, executor: SimExecutor, macro_cost: Roofline | None
    ) -> None:
        self.scheduler, self.executor, self.macro_cost = scheduler, executor, macro_cost
        self.start_s = executor.now()
        # A column a fact, for a million requests take a few bytes each.
        self.times = {name: array("d") for name in ("arrived", "queued", "ttft", "e2e")}
        self.counts = {name: array("q") for name in ("prompt", "cached", "output")}
        self.families: list[str] = []
        self.refused = 0

    def run_until(self, until_s: float) -> None:
        """Step until the trace's clock shows `until_s`, or time passes it in a step.

        With nothing left to do the clock jumps there; with no time to stop at, it stays.
        """
        scheduler, executor = self.scheduler, self.executor
        end_s = self.start_s + until_s
        while scheduler.has_work and executor.now() < end_s:
            plan = scheduler.plan()
            if plan is None:
                self._note(scheduler.take_events())
                continue
            limit = scheduler.repeats(plan) if self.macro_cost is not None else 1
            if limit > 1 and self.macro_cost is not None:
                steps = executor.repeat(self.macro_cost.repeated(plan), limit, end_s)
                scheduler.commit_repeated(plan, ANSWER, steps)
            else:
                self._note(scheduler.commit(plan, executor.wait(executor.submit(plan))))
        if until_s < math.inf:
            executor.advance_to(end_s)

    def add(self, arrival: Arrival) -> None:
        """Submit a request, which arrives now or arrived during the last step."""
        index = len(self.families)
        params = SamplingParams(max_new_tokens=arrival.output_tokens, ignore_eos=True)
        self.families.append(arrival.family)
        for times in self.times.values():
            times.append(0.0)
        for counts in self.counts.values():
            counts.append(0)
        self.times["arrived"][index] = arrival.time_s
        # A request that arrives during a step is seen at its end; it has waited since.
        for name in ("queued", "ttft"):
            self.times[name][index] = self.executor.now() - self.start_s - arrival.time_s
        self.times["e2e"][index] = math.nan
        self.counts["prompt"][index] = len(arrival.tokens)
        try:
            self.scheduler.add(Request(str(index), arrival.tokens, params, client=arrival.family))
        except PromptTooLong:
            self.refused += 1

    def _note(self, events: list[Delta]) -> None:
        for event in events:
            completion = event.completion
            assert completion is not None, "nothing streams here"
            if completion.finish.kind is FinishKind.ABORT:
                self.refused += 1
                continue
            index = int(completion.id.removeprefix("trace-"))
            since = self.start_s + self.times["arrived"][index]
            self.times["e2e"][index] = self.executor.now() - since
            self.times["queued"][index] += completion.queued_s
            self.times["ttft"][index] += completion.ttft_s
            self.counts["cached"][index] = completion.cached_tokens
            self.counts["output"][index] = len(completion.output_ids)

    def served(self) -> Served:
        """Return what became of all requests so far."""
        times = {name: np.array(column) for name, column in self.times.items()}
        counts = {name: np.array(column) for name, column in self.counts.items()}
        return Served(
            stats=self.scheduler.stats,
            elapsed_s=self.executor.now() - self.start_s,
            arrived_s=times["arrived"],
            queued_s=times["queued"],
            ttft_s=times["ttft"],
            e2e_s=times["e2e"],
            prompt_tokens=counts["prompt"],
            cached_tokens=counts["cached"],
            output_tokens=counts["output"],
            families=self.families,
            refused=self.refused,
        )
