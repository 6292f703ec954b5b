"""What admission keeps for those who are here: chats come back to what they had computed."""

import random
from dataclasses import replace

import pytest

from sgjax.cache import NextUseSpec
from sgjax.errors import ConfigError
from sgjax.schedule.reserve import Candidate, WorkingSet
from sgjax.schedule.spec import DeferSpec, InOrderSpec, LpmSpec, WorkingSetSpec
from tests.schedule.harness import Bench, Setup, ask, words

TURNS, ASKED, ANSWERED = 4, 30, 10
CHAT = TURNS * (ASKED + ANSWERED)
ROOM_FOR_THREE = Setup(
    LpmSpec(), DeferSpec(min_tokens=4), eviction=NextUseSpec(), pages=3 * CHAT, max_running=16
)


def nothing_held(most: float) -> int:
    del most
    return 0


def chat(setup: Setup, num_chats: int) -> Bench:
    """Hold chats at once, each turn sent when the one before was answered."""
    rng = random.Random(num_chats)
    bench = Bench(setup)
    said = {chat: words(rng, ASKED) for chat in range(num_chats)}
    asked = {f"{chat}.0": chat for chat in said}
    bench.add(*(ask(name, said[chat], ANSWERED) for name, chat in asked.items()))
    while bench.scheduler.has_work:
        bench.step()
        for name in [name for name in asked if name in bench.done]:
            chat, turn = asked.pop(name), int(name.split(".")[1]) + 1
            said[chat] += bench.done[name].output_ids + words(random.Random(turn), ASKED)
            if turn < TURNS:
                asked[f"{chat}.{turn}"] = chat
                bench.add(ask(f"{chat}.{turn}", said[chat], ANSWERED))
    bench.run()
    assert len(bench.done) == num_chats * TURNS
    return bench


@pytest.mark.parametrize("num_chats", [6, 12, 24])
def test_chats_in_turns_find_nearly_all_they_computed_and_say_the_same(num_chats: int) -> None:
    benches = [
        chat(replace(ROOM_FOR_THREE, admission=admission), num_chats)
        for admission in (InOrderSpec(), WorkingSetSpec())
    ]
    said = [{name: c.output_ids for name, c in bench.done.items()} for bench in benches]
    assert said[0] == said[1]
    # A turn's last sampled token has no K/V, so it is computed with the next question.
    per_chat = sum(turn * (ASKED + ANSWERED) - 1 for turn in range(1, TURNS))
    without, with_room = (bench.scheduler.stats.cached_tokens for bench in benches)
    assert without < 0.85 * num_chats * per_chat
    assert 0.94 * num_chats * per_chat <= with_room <= num_chats * per_chat


def test_where_there_is_room_for_all_it_keeps_nobody_waiting() -> None:
    passes = [
        chat(replace(ROOM_FOR_THREE, pages=4000, admission=admission), 6)
        for admission in (InOrderSpec(), WorkingSetSpec())
    ]
    assert len({bench.scheduler.stats.forward_passes for bench in passes}) == 1


def test_a_request_that_leaves_nothing_for_others_is_let_in_when_nobody_runs() -> None:
    bench = Bench(replace(ROOM_FOR_THREE, pages=100, admission=WorkingSetSpec(keep=1.0)))
    rng = random.Random(0)
    bench.add(ask("small", words(rng, 10), 20), ask("large", words(rng, 80), 5))
    bench.step()
    assert [row.seq.request.id for row in bench.plans[0].rows] == ["small"]
    bench.run()
    first = {plan.rows[0].seq.request.id: at for at, plan in reversed(list(enumerate(bench.plans)))}
    assert first["large"] == 20  # the very step after the last token of the small one


def test_more_is_kept_from_who_computes_more() -> None:
    reserve = WorkingSet(keep=0.5)
    new = Candidate(matched=0, own=0, missing=40, spare=499, capacity=1000)
    assert not reserve.allows(new, nothing_held)
    assert reserve.allows(new._replace(spare=500), nothing_held)
    half_found = new._replace(matched=40, spare=249)
    assert not reserve.allows(half_found, nothing_held)
    assert reserve.allows(half_found._replace(spare=250), nothing_held)
    assert not reserve.allows(half_found._replace(spare=250), lambda most: 10)


def test_what_the_waiting_would_hit_is_kept_up_to_the_share() -> None:
    asked = []

    def held(most: float) -> int:
        asked.append(most)
        return int(most)

    candidate = Candidate(matched=0, own=0, missing=40, spare=600, capacity=1000)
    assert WorkingSet(keep=0.3).allows(candidate, held)
    assert not WorkingSet(keep=0.3).allows(candidate._replace(spare=599), held)
    assert asked == [300]  # only where it matters


def test_where_nobody_comes_back_nothing_is_kept_for_the_next_turns() -> None:
    reserve = WorkingSet(keep=0.5)
    new = Candidate(matched=0, own=0, missing=40, spare=20, capacity=1000)
    # A prefix that those who run hold, too, is no sign of coming back.
    family = new._replace(matched=400, own=0)
    for _ in range(5 * WorkingSet.MEMORY):
        reserve.admitted(family)
    assert reserve.allows(new, nothing_held)
    for _ in range(WorkingSet.MEMORY):
        reserve.admitted(new._replace(matched=400, own=400))
    assert not reserve.allows(new, nothing_held)


@pytest.mark.parametrize("keep", [-0.1, 1.1])
def test_a_share_is_between_none_and_all(keep: float) -> None:
    with pytest.raises(ConfigError, match=r"a share in \[0, 1\]"):
        WorkingSetSpec(keep)
