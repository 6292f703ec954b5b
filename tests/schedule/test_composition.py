"""What a step is made of, and whether a request that does not fit holds up those behind it."""

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import sgjax as sgl
from sgjax.errors import ConfigError
from sgjax.schedule.spec import (
    InOrderSpec,
    LpmSpec,
    MixedSpec,
    PassOverSpec,
    PromptsFirstSpec,
    SharePlannedSpec,
)
from tests.schedule.harness import Bench, Setup, ask, words


def serve(setup: Setup, seed: int, count: int = 24) -> Bench:
    """Serve requests of all lengths, most of which come while others run."""
    rng = random.Random(seed)
    bench = Bench(setup)
    stems = [words(rng, 40) for _ in range(3)]
    for i in range(count):
        prompt = rng.choice(stems)[: rng.randrange(1, 41)] + words(rng, rng.randrange(1, 30))
        bench.add(ask(str(i), prompt, rng.randrange(1, 25)))
        for _ in range(rng.randrange(4)):
            bench.step()
    bench.run()
    return bench


def kinds_of_rows(bench: Bench) -> list[set[str]]:
    """Return what each step did: went on decoding what the step before had sampled, or else."""
    decodes_from: dict[str, int] = {}
    kinds = []
    for plan in bench.plans:
        kinds.append(
            {
                "decode"
                if decodes_from.get(row.seq.request.id) == row.start and row.num_tokens == 1
                else "prompt"
                for row in plan.rows
            }
        )
        for row in plan.rows:
            decodes_from[row.seq.request.id] = row.end if row.sample else -1
    return kinds


TIGHT = {"pages": 180, "max_running": 6, "token_budget": 96, "growth": 0.2, "policy": LpmSpec()}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 3, 10]), st.booleans())
def test_prompts_first_never_mixes_prompts_and_decodes(seed, decode_steps, skips) -> None:
    admission = PassOverSpec() if skips else InOrderSpec()
    # With room for most of all outputs nearly nobody is retracted: whoever comes back lacking one
    # token comes as prompts do, but looks as if it had gone on.
    roomy = {**TIGHT, "growth": 1.0}
    bench = serve(
        Setup(**roomy, composition=PromptsFirstSpec(decode_steps), admission=admission), seed
    )
    assume(bench.scheduler.stats.retractions == 0)
    assert all(len(kind) == 1 for kind in kinds_of_rows(bench))


def test_mixed_does_mix() -> None:
    assert any(len(kind) == 2 for kind in kinds_of_rows(serve(Setup(**TIGHT), 0)))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([PromptsFirstSpec(1), PromptsFirstSpec(7)]))
def test_answers_are_the_same_however_steps_are_composed(seed, composition) -> None:
    answers = []
    for setup in (
        Setup(**TIGHT),
        Setup(**TIGHT, composition=composition),
        Setup(**TIGHT, composition=composition, admission=PassOverSpec()),
    ):
        done = serve(setup, seed).done
        answers.append({name: completion.output_ids for name, completion in done.items()})
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("decode_steps", [1, 4])
def test_whoever_comes_waits_for_the_end_of_a_round_of_decoding(decode_steps: int) -> None:
    bench = Bench(Setup(composition=PromptsFirstSpec(decode_steps)))
    rng = random.Random(0)
    bench.add(ask("first", words(rng, 20), 100))
    bench.step()  # its prompt
    bench.step()  # the first decode of a round
    bench.add(ask("second", words(rng, 20), 4))
    seen = [len(bench.step().rows[0].seq.request.id) for _ in range(decode_steps)]
    assert seen == [len("first")] * (decode_steps - 1) + [len("second")]


@pytest.mark.parametrize(
    ("budget", "padding", "steps"),
    [
        (96, None, ["abc", "d"]),
        (96, 3, ["ab", "c", "d"]),  # c is ten tokens shorter than the longest
        (96, 14, ["abc", "d"]),  # d would make them 23
        (65, 14, ["ab", "cd"]),  # three as long as the longest are 96
    ],
)
def test_prompts_share_a_step_while_padding_them_to_the_longest_costs_little(
    budget: int, padding: int | None, steps: list[str]
) -> None:
    rng = random.Random(1)
    composition = PromptsFirstSpec(1, max_padding=padding)
    bench = Bench(Setup(composition=composition, token_budget=budget, block_tokens=1))
    bench.add(*(ask(i, words(rng, n), 2) for i, n in zip("abcd", (30, 32, 22, 13), strict=True)))
    bench.run()
    prompts = [plan for plan in bench.plans if plan.num_tokens > len(plan.rows)]
    assert ["".join(row.seq.request.id for row in plan.rows) for plan in prompts] == steps


def test_whole_prompts_share_a_step_and_only_what_exceeds_it_is_cut() -> None:
    rng = random.Random(1)
    bench = Bench(Setup(composition=PromptsFirstSpec(1), token_budget=64))
    for name, length in (("a", 30), ("b", 32), ("long", 100), ("c", 5)):
        bench.add(ask(name, words(rng, length), 2))
    bench.run()
    prompts = [
        [(row.seq.request.id, row.start, row.end) for row in plan.rows]
        for plan in bench.plans
        if plan.num_tokens > len(plan.rows)
    ]
    # The long one waits until it begins a step; its end leaves room for the last.
    assert prompts == [
        [("a", 0, 30), ("b", 0, 32)],
        [("long", 0, 64)],
        [("long", 64, 100), ("c", 0, 5)],
    ]


def make_queue(admission) -> Bench:
    """Return a bench where one runs, a big one that does not fit waits, and a small one behind."""
    rng = random.Random(2)
    bench = Bench(Setup(pages=100, growth=0.0, admission=admission))
    bench.add(ask("runs", words(rng, 40), 20))
    bench.step()
    bench.add(ask("big", words(rng, 70), 2), ask("small", words(rng, 10), 2))
    return bench


def test_in_order_nobody_overtakes_who_does_not_fit() -> None:
    bench = make_queue(InOrderSpec())
    plan = bench.step()
    assert [row.seq.request.id for row in plan.rows] == ["runs"]
    assert list(bench.run()) == ["runs", "big", "small"]


def test_passing_over_lets_the_small_in_before_the_big() -> None:
    bench = make_queue(PassOverSpec())
    plan = bench.step()
    assert [row.seq.request.id for row in plan.rows] == ["runs", "small"]
    assert list(bench.run()) == ["small", "runs", "big"]


@pytest.mark.parametrize(("matches_all", "found"), [(False, [0, 20]), (True, [0, 30])])
def test_what_all_who_are_let_in_share_is_evicted_only_if_it_is_asked_later(
    matches_all: bool, found: list[int]
) -> None:
    rng = random.Random(4)
    admission = PassOverSpec(matches_all=matches_all)
    bench = Bench(Setup(pages=100, token_budget=200, growth=0.0, admission=admission))
    early, late = words(rng, 30), words(rng, 30)
    for name, stem in (("early", early), ("late", late)):
        bench.add(ask(name, stem, 1))
        bench.run()
    bench.add(ask("new", words(rng, 50), 1))
    bench.add(*(ask(f"{i} again", stem + words(rng, 5), 1) for i, stem in enumerate([early, late])))
    first = bench.step()
    # The first in the queue needs the room of what was used longest ago, which the second hits.
    assert [row.seq.request.id for row in first.rows] == ["new", "0 again"]
    assert [row.seq.cached_tokens for row in first.rows] == found
    bench.run()


def test_pages_that_are_shared_when_planned_are_needed_at_once() -> None:
    with pytest.raises(ConfigError, match="share_planned"):
        Bench(Setup(siblings=SharePlannedSpec(), admission=PassOverSpec(matches_all=True)))


def test_whom_steps_pass_over_runs_alone_in_the_end() -> None:
    rng = random.Random(3)
    setup = Setup(pages=100, growth=0.0, composition=PromptsFirstSpec(2), admission=PassOverSpec())
    bench = Bench(setup)
    bench.add(ask("big", words(rng, 90), 2))
    bench.add(*(ask(str(i), words(rng, 20), 9) for i in range(6)))
    assert set(bench.run()) == {"big", *map(str, range(6))}


def test_a_round_has_at_least_one_step() -> None:
    with pytest.raises(ConfigError, match="decode_steps=0"):
        PromptsFirstSpec(0)
    assert MixedSpec().type == "mixed"


@pytest.mark.parametrize("rejoins", [False, True])
def test_who_jumps_forward_waits_behind_who_came_meanwhile_and_says_the_same(rejoins) -> None:
    """One runs at a time: a story stands behind a form, until the form's text is forced."""
    with sgl.Engine(
        executor={"type": "sim", "hardware": "a10g", "model": "llama-2-7b"},
        composition={"type": "prompts_first", "decode_steps": 10, "jumps_rejoin": rejoins},
        policy={"type": "fcfs"},
        admission={"type": "pass_over", "joins_at_end": True},
        cache={"type": "tree", "takes": "finished"},
        grammar={"jump": {"type": "retokenize"}},
        max_running=1,
        debug_checks=True,
    ) as engine:
        form = {"temperature": 0, "max_new_tokens": 99, "regex": "[a-p]{2} forced words [a-p]{2}"}
        story = {"temperature": 0, "max_new_tokens": 60, "ignore_eos": True}
        form_said, story_said = engine.generate(["A form: ", "A story: "], [form, story])
        alone = engine.generate("A form: ", form)
    form_s, story_s = (said["meta_info"]["e2e_latency_s"] for said in (form_said, story_said))
    assert (form_s > story_s) == rejoins
    assert form_said["text"] == alone["text"]
