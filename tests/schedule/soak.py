"""A random life of a scheduler: requests, hints, aborts and steps, then everyone must be answered.

python -m tests.schedule.soak 1000000      so many random actions, in lives of 20,000
"""

import random
import sys
import time

from sgjax.cache import LruSpec, TreeSpec
from sgjax.schedule.spec import DeferSpec, LpmSpec
from sgjax.types import Wants
from tests.schedule.harness import Bench, Setup, ask, words


def soak(setup: Setup, seed: int, steps: int, checks: bool = True) -> Bench:
    """Drive a scheduler at random, then let it finish; verify that everybody heard back."""
    rng = random.Random(seed)
    bench = Bench(setup, checks)
    longest = min(setup.max_context_len, setup.pages * setup.page_size) - 20
    stems = [words(rng, rng.randrange(1, max(2, longest // 2))) for _ in range(4)]
    asked: list[str] = []
    hints: list[str] = []

    def submit() -> None:
        name = str(len(asked))
        stem = rng.choice(stems)
        prompt = (stem[: rng.randrange(len(stem)) + 1] + words(rng, rng.randrange(1, 9)))[:longest]
        if rng.random() < 0.2:
            followers = rng.randrange(4)
            wants = rng.choice([Wants.NOTHING, Wants.LOGPROBS])
            start = 0 if wants is Wants.LOGPROBS else None
            bench.add(ask(name, prompt, wants=wants, followers=followers, logprob_start=start))
            asked.append(name)
            for _ in range(rng.randrange(followers + 1)):
                child = str(len(asked))
                bench.add(ask(child, prompt + words(rng, 2), 3, after=name))
                asked.append(child)
            hints.append(name)
            return
        bench.add(ask(name, prompt, rng.randrange(1, 12), stream=rng.random() < 0.3))
        asked.append(name)

    for _ in range(steps):
        action = rng.random()
        if action < 0.3:
            submit()
        elif action < 0.35 and asked:
            bench.scheduler.abort(rng.choice(asked))
        elif action < 0.4 and hints:
            bench.scheduler.release_hint(hints.pop())
        else:
            bench.step()
    for name in hints:
        bench.scheduler.release_hint(name)
    done = bench.run(limit=20_000)
    assert set(done) == set(asked)
    for name, completion in done.items():
        text = "".join(d.text for d in bench.deltas[name])
        assert text == completion.text
    return bench


def main(actions: int, life: int = 20_000) -> None:
    """Soak in lives with changing pools; print what happened."""
    started, done = time.perf_counter(), 0
    while done < actions:
        setup = Setup(
            LpmSpec(),
            DeferSpec(min_tokens=4),
            TreeSpec(),
            LruSpec(),
            pages=(90, 120, 400)[done // life % 3],
            max_running=6,
            growth=0.2,
        )
        stats = soak(setup, seed=done, steps=life, checks=False).scheduler.stats
        done += life
        print(f"{done} actions, {time.perf_counter() - started:.0f} s: {stats}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
