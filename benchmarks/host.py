"""What the host costs a step: plan + commit with 64 running and a long queue, against a 20 ms step.

Runs the real scheduler against an executor that answers at once, so only host work is timed. Also
shows how the cost grows with the queue and with the tree: it should not.

    python benchmarks/host.py
"""

import statistics
import time

import numpy as np

from sgjax.cache import LruSpec, PagePool, TreeSpec, build_cache
from sgjax.schedule import (
    AdaptiveGrowth,
    LeastProgress,
    Limits,
    Mixed,
    PageKeeper,
    PolicySpec,
    Scheduler,
    Strategies,
    build_policy,
    build_siblings,
)
from sgjax.schedule.spec import DeferSpec, FcfsSpec, LpmSpec
from sgjax.sim import SimExecutor, hashed_tokens, linear_cost
from sgjax.tokens.byte import ByteTokenizer
from sgjax.types import Request, SamplingParams

STEP_S = 0.020
RUNNING = 64


def make(policy: PolicySpec, waiting: int, cached: int) -> tuple[Scheduler, SimExecutor]:
    """Return a scheduler with 64 running, so many waiting, and so many cached tokens."""
    pool = PagePool(2_000_000, 1)
    executor = SimExecutor(hashed_tokens(250), linear_cost(STEP_S, 0.0))
    scheduler = Scheduler(
        pages=PageKeeper(pool, build_cache(TreeSpec(), LruSpec(), pool)),
        strategies=Strategies(
            policy=build_policy(policy),
            siblings=build_siblings(DeferSpec()),
            composition=Mixed(),
            growth=AdaptiveGrowth(0.0, 0.0, 600),
            retract=LeastProgress(),
        ),
        tokenizer=ByteTokenizer(),
        limits=Limits(RUNNING, 4096, 16, 100_000),
        seed=0,
        now=executor.now,
    )
    rng = np.random.default_rng(0)

    def ask(name: str, length: int, new: int) -> None:
        tokens = tuple(rng.integers(1, 250, length).tolist())
        params = SamplingParams(max_new_tokens=new, ignore_eos=True)
        scheduler.add(Request(name, tokens, params))

    for i in range(cached // 1000):
        ask(f"c{i}", 1000, 1)
    while scheduler.has_work:
        step(scheduler, executor)
    for i in range(RUNNING):
        ask(f"r{i}", 100, 20_000)
    while scheduler.num_running < RUNNING:
        step(scheduler, executor)
    for i in range(waiting):
        ask(f"w{i}", 100, 100)
    return scheduler, executor


def step(scheduler: Scheduler, executor: SimExecutor) -> float:
    """Run one step; return the seconds that plan and commit took."""
    started = time.perf_counter()
    plan = scheduler.plan()
    planned = time.perf_counter() - started
    assert plan is not None
    out = executor.wait(executor.submit(plan))
    started = time.perf_counter()
    scheduler.commit(plan, out)
    return planned + time.perf_counter() - started


def main() -> None:
    """Print one row per policy, queue and tree."""
    print(f"plan + commit, {RUNNING} running; median of 300 steps and share of a 20 ms step")
    for policy in (FcfsSpec(), LpmSpec()):
        for waiting, cached in ((0, 0), (1_000, 0), (10_000, 0), (10_000, 500_000)):
            scheduler, executor = make(policy, waiting, cached)
            for _ in range(20):
                step(scheduler, executor)
            middle = statistics.median(step(scheduler, executor) for _ in range(300))
            print(
                f"{policy.type:5} waiting {waiting:6} cached {cached:7}: "
                f"{middle * 1e6:7.0f} us {middle / STEP_S:7.2%}"
            )


if __name__ == "__main__":
    main()
