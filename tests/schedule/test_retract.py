"""Who goes back to the queue when pages run out."""

import random

from sgjax.schedule import LeastProgress
from tests.schedule.harness import Bench, ask, words


def test_whoever_produced_least_goes_and_of_equals_the_latest() -> None:
    rng = random.Random(1)
    bench = Bench()
    bench.add(ask("old", words(rng, 5), 50))
    bench.step()
    bench.step()
    bench.add(ask("young", words(rng, 5), 50), ask("youngest", words(rng, 5), 50))
    bench.step()
    running = list(bench.scheduler._running.values())
    assert [seq.num_output for seq in running] == [3, 1, 1]
    rule = LeastProgress()
    assert rule.pick(running).request.id == "youngest"
    assert rule.pick(running[:2]).request.id == "young"
