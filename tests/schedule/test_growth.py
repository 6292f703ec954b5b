"""Admission's estimate: how it moves, and that it never keeps a request from running alone."""

import random

import pytest

from sgjax.schedule import AdaptiveGrowth
from sgjax.types import FinishKind, Request, SamplingParams
from tests.schedule.harness import Bench, Setup, ask, words


def test_the_share_sinks_to_its_floor_while_nobody_is_retracted() -> None:
    growth = AdaptiveGrowth(start=0.7, floor=0.1, decay_steps=6)
    shares = []
    for _ in range(8):
        growth.step()
        shares.append(growth.share)
    assert shares == pytest.approx([0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1])


def test_a_retraction_raises_the_share_to_what_was_seen() -> None:
    bench = Bench(Setup(max_running=2))
    bench.add(*(ask(str(i), words(random.Random(i), 8), 100) for i in range(2)))
    for _ in range(11):
        bench.step()
    running = list(bench.scheduler._running.values())
    assert [seq.num_output for seq in running] == [11, 11]
    growth = AdaptiveGrowth(start=0.0, floor=0.0, decay_steps=1, lookahead=20)
    growth.retracted(running)
    assert growth.share == pytest.approx(62 / 201)
    assert growth.tokens(running) == pytest.approx(62 / 201 * 178)


def test_the_scheduler_tells_the_estimate_of_every_retraction() -> None:
    bench = Bench(Setup(pages=120, growth=0.0))
    bench.add(*(ask(str(i), words(random.Random(i), 10), 60) for i in range(4)))
    while not bench.scheduler.stats.retractions:
        bench.step()
    assert bench.scheduler._growth.share > 0


def test_alone_a_request_takes_all_there_is_whatever_it_may_grow_to() -> None:
    bench = Bench(Setup(pages=40, growth=1.0))
    prompt = words(random.Random(3), 10)
    end = Bench()
    end.add(ask("x", prompt, 9))
    last = end.run()["x"].output_ids[-1]
    params = SamplingParams(max_new_tokens=500, stop_token_ids=(last,))
    bench.add(Request("x", prompt, params))
    assert bench.run()["x"].finish.kind is FinishKind.STOP
