"""Distortion: the fixed cases are what they claim, and an engine's spread is what it draws."""

import collections
import itertools
import json
import math
import random
import re
import zlib

import numpy as np
import pytest
from scipy import stats

import sgjax as sgl
from sgjax.errors import ConfigError
from sgjax.fsm.canonical import CanonicalGrammar
from sgjax.fsm.grammar import compile_regex
from sgjax.fsm.jump import NoJump, StableTokens
from sgjax.fsm.kernels import Budget
from sgjax.fsm.language import list_texts
from sgjax.fsm.pairs import CanonicalPairs
from sgjax.fsm.portable import PortableKernels
from sgjax.fsm.vocabulary import Vocabulary, unpack_ids
from sgjax.lab.metrics import METRICS
from sgjax.lab.spread import (
    Scores,
    Spread,
    divergence,
    masked_spread,
    over_texts,
    true_outputs,
    walk_together,
)
from sgjax.lab.workloads import DataSource, DistortionWorkload
from sgjax.lab.workloads.distortion import MAX_TEXTS
from sgjax.lang.spec import LanguageSpec, SequentialFork
from sgjax.types import Completion, Delta, FinishKind, FinishReason, TokenLogprob
from tests.fsm.small import byte_level
from tests.schedule.test_constrained import MODES, Bench

CASES = DistortionWorkload().load(DataSource(), seed=0).cases
LISTED = DistortionWorkload(listed=True).load(DataSource(), seed=0).cases
PROMPT = (5,)


def grammar(pattern, canonical=False):
    tokenizer = byte_level()
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size)
    found = compile_regex(pattern, vocabulary, PortableKernels(), Budget())
    if canonical:
        return CanonicalGrammar(found, vocabulary, CanonicalPairs(tokenizer), 1 << 24)
    return found


def table(context):
    """A made-up model: longer tokens are likelier, as in a real one, but not much."""
    tokenizer = byte_level()
    rng = np.random.default_rng(zlib.crc32(repr(tuple(context)).encode()))
    lengths = [len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)]
    logits = rng.normal(0, 1, tokenizer.vocab_size) + np.array(lengths)
    return logits - np.log(np.exp(logits).sum())


class TableEngine:
    """Scores the last token of what it is asked."""

    def __init__(self):
        self.tokenizer = byte_level()
        self.asked = 0
        self._ids = itertools.count()

    def new_id(self):
        return f"r{next(self._ids)}"

    def submit(self, requests, hear):
        for index, request in enumerate(requests):
            self.asked += 1
            *context, token = request.tokens
            entry = TokenLogprob(float(table(context)[token]), token)
            completion = Completion(
                request.id, "", (), len(request.tokens), 0, 0, FinishReason(FinishKind.STOP),
                (TokenLogprob(None, context[-1]), entry), None, 0.0, 0.0, 0.0,
            )  # fmt: skip
            hear(index, Delta(request.id, "", (), completion))


def spread_of(found, jump, least=1e-9):
    scores = Scores(TableEngine(), {})
    walk = masked_spread(found, jump, byte_level(), PROMPT, scores, 96, least)
    return walk_together([walk], scores)[0]


def test_the_cases_are_what_their_classes_say() -> None:
    assert len(CASES) >= 40
    assert len({case.id for case in CASES}) == len(CASES)
    assert min(collections.Counter(case.kind for case in CASES).values()) >= 10
    for case, listed in zip(CASES, LISTED, strict=True):
        texts = [t.decode() for t in list_texts(grammar(case.regex).dfa, MAX_TEXTS)]
        assert all(re.fullmatch(case.regex, text) for text in texts)
        assert case.answer in texts
        assert (len(texts) == 1) == (case.kind == "deterministic")
        lengths = {len(text) for text in texts}
        if case.kind != "nested":
            assert (len(lengths) == 1) == (case.kind != "different_length"), case.id
        assert case.prompt != listed.prompt
        assert case.regex == listed.regex
        options = re.fullmatch(r" \((.*)\)", case.regex)
        if case.kind != "nested" and options:  # the listed prompt names every choice
            assert all(text.strip() in listed.prompt for text in texts), case.id


@pytest.mark.parametrize("canonical", [False, True], ids=["all", "canonical"])
@pytest.mark.parametrize("mode", MODES)
def test_the_spread_is_what_a_scheduler_draws(mode, canonical) -> None:
    pattern = r"(red|green|blue) (car|big truck)"
    bench = Bench(byte_level(), MODES[mode], canonical=canonical, pages=4000)
    rng = random.Random(f"{mode}{canonical}")

    def sample(seq):
        row = seq.grammar.mask_row(seq.grammar_state)
        allowed = unpack_ids(seq.grammar.rows[row])
        weights = np.exp(table(seq.tokens.view().tolist())[allowed])
        return rng.choices(allowed.tolist(), weights.tolist())[0]

    bench.executor.say(sample)
    for i in range(500):
        bench.add(f"r{i}", PROMPT, pattern)
    counts = collections.Counter(c.text.encode() for c in bench.run().values())
    spread = spread_of(grammar(pattern, canonical), MODES[mode](byte_level()))
    assert sum(spread.texts.values()) + spread.lost == pytest.approx(1)
    assert counts.keys() <= spread.texts.keys()
    likely = [t for t, p in spread.texts.items() if p * 500 >= 5]
    observed = [counts[t] for t in likely]
    expected = [500 * spread.texts[t] for t in likely]
    rest = 500 - sum(expected)
    if rest > 1:
        observed, expected = [*observed, 500 - sum(observed)], [*expected, rest]
    assert stats.chisquare(observed, np.array(expected) * 500 / sum(expected)).pvalue > 1e-3


def test_under_canonical_masks_certain_jumps_change_no_probability_of_any_case() -> None:
    for case in CASES:
        found = grammar(case.regex, canonical=True)
        plain, jumped = (spread_of(found, jump) for jump in (NoJump(), StableTokens(byte_level())))
        assert divergence(plain, jumped, 1e-9) <= 1e-6, case.id
        assert plain.texts.keys() == jumped.texts.keys()


def test_the_true_spread_is_the_models_own() -> None:
    tokenizer, scores = byte_level(), Scores(TableEngine(), {})
    found = grammar("(red|green) (car|big truck)s?")
    (outputs,) = walk_together([true_outputs(found, tokenizer, PROMPT, scores, 20)], scores)
    (end,) = tokenizer.end_ids
    weights = {}
    for text in ("red car", "red big truck", "green car", "green big truck"):
        for output in ([*tokenizer.encode(text), end], tokenizer.encode(text + "s")):
            steps = enumerate(output)
            weights[tuple(output)] = sum(table([*PROMPT, *output[:i]])[t] for i, t in steps)
    total = sum(math.exp(w) for w in weights.values())
    assert outputs.keys() == weights.keys()
    for output, weight in weights.items():
        assert outputs[output] == pytest.approx(math.exp(weight) / total)
    assert over_texts(outputs, tokenizer).texts.keys() == {
        f"{a} {b}{s}".encode() for a in ("red", "green") for b in ("car", "big truck")
        for s in ("", "s")
    }  # fmt: skip


def test_what_is_scored_is_scored_once_and_improbable_ways_are_named() -> None:
    engine, known = TableEngine(), {}
    found = grammar("(red|green) (car|big truck)")
    for least in (0.05, 0.05, 0.2):
        scores = Scores(engine, known)
        walk = masked_spread(found, NoJump(), byte_level(), PROMPT, scores, 96, least)
        (spread,) = walk_together([walk], scores)
        assert spread.lost > 0
        assert sum(spread.texts.values()) + spread.lost == pytest.approx(1)
        assert engine.asked == len(known)


def test_divergence_is_that_of_the_formula() -> None:
    p, q = Spread({b"a": 0.5, b"b": 0.5}, 0.0), Spread({b"a": 0.25, b"b": 0.75}, 0.0)
    assert divergence(p, q, 1e-9) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    lost = Spread({b"a": 1.0}, 0.0)
    assert divergence(p, lost, 0.01) == pytest.approx(0.5 * math.log(0.5) + 0.5 * math.log(50))


def test_a_run_reports_distances_accuracy_and_speed() -> None:
    workload = DistortionWorkload(kinds=("different_length",), samples=2)
    task = workload.load(DataSource(), seed=0)
    sim = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b", "logprobs": "zero"}
    with sgl.Engine(executor=sim) as engine:
        warm = task.first(2).run(engine, LanguageSpec())
        assert "kl_nats" not in warm.metrics
        ran = task.run(engine, LanguageSpec())
        assert ran.metrics.keys() <= METRICS.keys()
        assert len(ran.outcomes) == task.num_programs
        assert len(ran.prompts) == 3 * task.num_programs
        assert ran.metrics["valid_outputs"] == 1
        assert ran.metrics["kl_nats"] == ran.metrics["kl_different_length_nats"]
        # One token a byte: nothing can be written in two ways, so jumps move nothing.
        assert ran.metrics["kl_of_jump_nats"] == pytest.approx(0, abs=1e-9)
        # The simulated model finds all tokens equally probable, masking prefers short texts less.
        assert ran.metrics["kl_nats"] > 0.01
        with pytest.raises(ConfigError, match="language"):
            task.run(engine, LanguageSpec(fork=SequentialFork()))


def test_an_exact_engine_has_no_distance() -> None:
    task = DistortionWorkload(kinds=("equal_length",), samples=1).load(DataSource(), seed=0)
    with sgl.Engine(
        "random:tiny", dtype="float32", max_context_len=256, max_running=8, kv_tokens=1600,
        token_budget=256, grammar={"sampler": {"type": "exact"}},
    ) as engine:  # fmt: skip
        metrics = task.run(engine, LanguageSpec()).metrics
    assert abs(metrics["kl_nats"]) <= 1e-4
    assert metrics["valid_outputs"] == 1


def test_unusable_options_and_files_are_refused(tmp_path) -> None:
    for options in ({"samples": -1}, {"least": 0.0}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            DistortionWorkload(**options).load(DataSource(), seed=0)
    row = dict.fromkeys(("id", "kind", "prompt", "prompt_listed", "regex", "answer"), "x")
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps(row) + "\n")
    with pytest.raises(ConfigError, match="unknown kinds"):
        DistortionWorkload(cases=str(cases)).load(DataSource(), seed=0)
