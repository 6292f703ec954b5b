"""Guesses change passes, never text: random lives with and without them, and each edge by name."""

import random

import numpy as np
import pytest

from sgjax.fsm.jump import StableTokens
from sgjax.schedule import Sequence
from sgjax.schedule.guess import suppose
from sgjax.schedule.spec import AdmitSpec, DeferSpec, SharePlannedSpec
from sgjax.sim import SimExecutor, linear_cost
from sgjax.tokens.detokenize import OutputText
from sgjax.types import FinishKind, Request, SamplingParams
from tests.fsm.small import byte_level
from tests.schedule.constrained import PATTERNS, TOKENIZERS, Bench

QUOTED = r'(k|v): "[a-z,]{1,3}", "[a-z0-9,]{1,2}"'
"""After `k:` comes ` "`, which is one token; a model may say ` ` and `"` as well."""
HELD = [QUOTED, r'\{"n": "[\w ,.]{0,4}", "m": "[\w ,.]{0,4}"\}', r"(a|b) = -?[0-9]{1,3}; c",
        r'(x|y): "[a-z,]{9,18}"']  # fmt: skip


def guessing(tokenizer):
    return StableTokens(tokenizer)


def plain(tokenizer):
    return StableTokens(tokenizer, guess=False)


def live(jump, seed):
    """Run a random life; return its bench, and the completions of those nobody aborted."""
    rng = random.Random(seed)
    page_size = rng.choice([1, 4, 16])
    bench = Bench(
        TOKENIZERS[rng.choice(list(TOKENIZERS))](),
        jump,
        canonical=rng.random() < 0.3,
        page_size=page_size,
        pages=rng.choice([60, 90, 600]) // page_size,
        running=rng.choice([1, 8, 8]),
        budget=rng.choice([16, 32, 64]),
        siblings=rng.choice([AdmitSpec(), DeferSpec(min_tokens=4), SharePlannedSpec()]),
    )
    stems = [[rng.randrange(2, 500) for _ in range(20)] for _ in range(6)]
    aborted = set()
    for i in range(40):
        prompt = [*rng.choice(stems)[: rng.randrange(1, 21)], *([i + 2] * rng.randrange(2))]
        pattern = rng.choice([*HELD, *HELD, *PATTERNS, None])
        stops = {"stop": ('"',)} if rng.random() < 0.15 else {}
        if rng.random() < 0.15:
            stops = {"stop_token_ids": tuple(bench.tokenizer.encode(': "')[-1:])}
        new = rng.choice([2, 5, 9, 14, 60]) if pattern is not None else rng.choice([6, 40])
        bench.add(f"r{i}", prompt, pattern, new, stream=rng.random() < 0.5, **stops)
        for _ in range(rng.randrange(2) if i > 15 else 0):
            bench.step()
        if rng.random() < 0.1:
            aborted.add(f"r{rng.randrange(i + 1)}")
            bench.scheduler.abort(max(aborted))
    done = bench.run()
    return bench, {name: c for name, c in done.items() if name not in aborted}


def test_random_lives_end_with_the_same_outputs_whether_or_not_anything_is_guessed() -> None:
    total = {"guessed": 0, "wrong": 0, "retracted": 0, "rows": 0, "plain rows": 0}
    for seed in range(12):
        (bench, done), (other, expected) = (live(jump, seed) for jump in (guessing, plain))
        assert done.keys() == expected.keys()
        for name, completion in done.items():
            for field in ("output_ids", "text", "finish", "forced_tokens"):
                assert getattr(completion, field) == getattr(expected[name], field), (seed, name)
        stats = bench.scheduler.stats
        # All that was said was sampled first in a row, or saved a pass; aborted outputs, too.
        said = sum(len(heard[-1].completion.output_ids) for heard in bench.deltas.values())
        assert said == bench.sampling_rows + stats.saved_passes
        assert stats.rolled_back_tokens == other.scheduler.stats.guessed_tokens == 0
        for heard in bench.deltas.values():
            assert "".join(d.text for d in heard) == heard[-1].completion.text
            ids = []
            for delta in heard:
                ids[delta.start :] = delta.token_ids
            assert tuple(ids) == heard[-1].completion.output_ids
        total["guessed"] += stats.guessed_tokens
        total["wrong"] += stats.wrong_guesses
        total["retracted"] += stats.retractions
        total["rows"] += bench.sampling_rows
        total["plain rows"] += other.sampling_rows
    assert total["guessed"] > total["wrong"] > 0
    assert total["retracted"] > 0
    assert total["rows"] < total["plain rows"], total


def write(bench, *texts):
    """Let the model say texts, each in the tokenizer's own tokens, and then the end."""
    own = [token for text in texts for token in bench.tokenizer.encode(text)]
    own.append(min(bench.tokenizer.end_ids))
    bench.executor = SimExecutor(lambda seq: own[seq.num_output], linear_cost(0.02, 0.001))
    return own


RIGHT = ('k: "ab", "c"',)
WRONG = ("k:", " ", '"ab",', " ", '"c"')


def test_a_right_guess_saves_its_pass_and_a_wrong_one_costs_a_token() -> None:
    rows, tokens, guesses = {}, {}, {}
    for texts in (RIGHT, WRONG):
        for jump in (guessing, plain):
            bench = Bench(byte_level(), jump)
            own = write(bench, *texts)
            bench.add("r", [5], QUOTED)
            completion = bench.run()["r"]
            assert list(completion.output_ids) == own[:-1]
            stats = bench.scheduler.stats
            rows[texts, jump], tokens[texts, jump] = bench.sampling_rows, stats.computed_tokens
            guesses[texts, jump] = stats.guessed_tokens, stats.wrong_guesses
    assert guesses == {
        (RIGHT, guessing): (2, 0),
        (WRONG, guessing): (4, 2),  # behind the lone space the quote is guessed, and rightly
        (RIGHT, plain): (0, 0),
        (WRONG, plain): (0, 0),
    }
    assert rows[RIGHT, guessing] == rows[RIGHT, plain] - 2
    assert tokens[RIGHT, guessing] == tokens[RIGHT, plain]
    assert rows[WRONG, guessing] == rows[WRONG, plain] - 2
    assert tokens[WRONG, guessing] == tokens[WRONG, plain] + 2


def test_an_output_that_may_take_one_more_token_guesses_none() -> None:
    bench = Bench(byte_level(), guessing)
    write(bench, *RIGHT)
    upto = len(bench.tokenizer.encode('k: "'))
    bench.add("r", [5], QUOTED, new=upto)
    completion = bench.run()["r"]
    assert completion.finish.kind is FinishKind.LENGTH
    assert completion.text == 'k: "'
    assert bench.scheduler.stats.guessed_tokens == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_that_a_guess_completes_ends_the_output_there(stream) -> None:
    bench = Bench(byte_level(), guessing)
    write(bench, *RIGHT)
    bench.add("r", [5], QUOTED, stop=(' "',), stream=stream)
    completion = bench.run()["r"]
    assert (completion.text, completion.finish.matched) == ("k:", ' "')
    assert bench.scheduler.stats.guessed_tokens == 1


def test_an_end_sampled_before_a_guess_drops_what_was_sampled_behind_it() -> None:
    bench = Bench(byte_level(), guessing)
    write(bench, *WRONG)
    (space,) = bench.tokenizer.encode(" ")
    bench.add("r", [5], QUOTED, stop_token_ids=(space,))
    completion = bench.run()["r"]
    assert completion.output_ids[-1] == completion.finish.matched == space
    stats = bench.scheduler.stats
    assert (stats.guessed_tokens, stats.wrong_guesses) == (1, 1)


def test_a_token_that_would_end_the_output_is_no_guess() -> None:
    tokenizer = byte_level()
    bench = Bench(tokenizer, guessing)
    held = tokenizer.encode('k: "')[-1]
    bench.add("r", [5], QUOTED, stop_token_ids=(held,))
    write(bench, *RIGHT)
    completion = bench.run()["r"]
    assert completion.finish.matched == held
    assert bench.scheduler.stats.guessed_tokens == 0


def test_a_guess_takes_no_page_that_anybody_runs_on() -> None:
    for left, guessed in ((9, [1, 1]), (5, [1, 0]), (4, [0, 0])):
        bench = Bench(byte_level(), guessing)
        write(bench, *RIGHT)
        bench.add("r", [5], QUOTED)
        bench.add("s", [6], QUOTED)
        bench.step()
        pool = bench.pages.pool
        pool.alloc(pool.num_free - left)
        plan = bench.scheduler.plan()  # each lacks pages for `k` and `:`, and for its guess
        assert [len(row.guesses) for row in plan.rows] == guessed
        assert bench.scheduler.stats.retractions == 0


def test_guesses_keep_to_the_token_budget() -> None:
    for budget, guessed in ((64, 3), (48, 3), (32, 1), (16, 0)):
        bench = Bench(byte_level(), guessing, budget=budget)
        write(bench, "x", '"ab"')
        for i in range(3):
            bench.add(f"r{i}", [5 + i], '[xy]"[a-z,]{1,3}"')
        bench.step()
        # Each is a decode of `x`, or with the guess behind it a block of 16.
        plan = bench.step()
        assert sorted(row.num_tokens for row in plan.rows) == [*[1] * (3 - guessed), *[2] * guessed]
        assert {c.text for c in bench.run().values()} == {'x"ab"'}


class Steps:
    """A grammar that allows 3, 4, 5 in this order and is complete behind 5."""

    def advance(self, state, token):
        return state + 1 if token == state + 3 else -1

    def is_final(self, state):
        return state == 3


@pytest.mark.parametrize(
    ("held", "ends", "room", "guessed"),
    [
        ((3, 4), (), 9, [3, 4]),
        ((3, 9), (), 9, [3]),
        ((3, 4, 5), (), 9, [3, 4]),
        ((3, 4), (4,), 9, [3]),
        ((3, 4), (), 2, [3]),
        ((3, 4), (), 1, []),
    ],
    ids=["all", "forbidden", "final", "an-end", "room-for-two", "room-for-one"],
)
def test_only_what_leaves_something_to_sample_is_supposed(held, ends, room, guessed) -> None:
    request = Request("r", (1,), SamplingParams(max_new_tokens=room))
    text = OutputText(byte_level(), request.params)
    seq = Sequence(request, np.array([1]), text, frozenset(ends), 0, 0, 0.0, 100)
    seq.grammar, seq.held = Steps(), held
    assert [guess.tokens.view()[-1] for guess in suppose(seq)] == guessed


def test_what_is_supposed_leaves_the_sequence_as_it_is() -> None:
    bench = Bench(byte_level(), guessing)
    write(bench, *RIGHT)
    bench.add("r", [5], QUOTED)
    bench.step()
    (seq,) = bench.scheduler._running.values()
    before = seq.tokens.view().tolist(), seq.grammar_state
    (guess,) = suppose(seq)
    assert guess.tokens.view().tolist() == [*before[0], *seq.held]
    assert guess.grammar_state == seq.grammar.advance(seq.grammar_state, seq.held[0])
    guess.tokens.append(9)
    assert (seq.tokens.view().tolist(), seq.grammar_state) == before
    assert guess.pages is seq.pages
