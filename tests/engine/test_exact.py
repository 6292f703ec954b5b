"""The exact sampler draws from the model's distribution conditioned on the language."""

import collections
import itertools
import math

import numpy as np
import pytest
from scipy import stats

import sgjax as sgl
from sgjax.engine.exact import ExactSampler
from sgjax.errors import ConfigError, GrammarError, PromptTooLong, RequestAborted, SgjaxError
from sgjax.fsm.spec import ExactSamplerSpec, GrammarSpec, LocalSamplerSpec, RetokenizeSpec
from sgjax.types import Constraint, ConstraintKind, Request, SamplingParams, Wants
from tests.engine.table_loop import TableLoop, score

PROMPT = (80, 81)
END = 256
LANGUAGES = {
    # A pattern, and its outputs by hand: bytes, and the end id where the text could go on.
    "(yes|no|maybe so)": [b"yes", b"no", b"maybe so"],
    "ab?(cd)?": [b"a\0", b"ab\0", b"acd", b"abcd"],
    "[ab]{1,2}x": [b"ax", b"bx", b"aax", b"abx", b"bax", b"bbx"],
}


def outputs(pattern):
    return [tuple(END if b == 0 else b for b in text) for text in LANGUAGES[pattern]]


def conditional(pattern, temperature=1.0):
    """The true distribution over outputs, by enumeration."""
    weights = {o: math.exp(score(PROMPT, o) / temperature) for o in outputs(pattern)}
    return {o: w / sum(weights.values()) for o, w in weights.items()}


class Asker:
    """An exact sampler over the table, and what its listeners heard."""

    def __init__(self, max_len=200, jump=None, **sampler):
        self.loop = TableLoop(sampler=ExactSamplerSpec(**sampler))
        spec = self.loop.spec
        if jump is not None:
            spec = GrammarSpec(jump=jump, sampler=spec.sampler)
        self.sampler = ExactSampler(
            self.loop, self.loop.grammars, self.loop.tokenizer, spec, 0, max_len, lambda: 0.0
        )
        self.heard = {}

    def ask(self, *ids, pattern, after=None, prompt=PROMPT, **params):
        constraint = Constraint(ConstraintKind.REGEX, pattern)
        common = {"params": SamplingParams(**params), "constraint": constraint, "after": after}
        self.sampler.submit(
            [
                (Request(i, prompt, **common), lambda heard, i=i: self.heard.__setitem__(i, heard))
                for i in ids
            ]
        )

    def answers(self, *ids, **asked):
        self.ask(*ids, **asked)
        self.loop.run(lambda: len(self.heard) >= len(ids))
        return [self.heard.pop(i) for i in ids]

    def draws(self, count, pattern, **params):
        """Completions of many requests, each with the engine's seeds."""
        found = self.answers(*(f"r{i}" for i in range(count)), pattern=pattern, **params)
        assert all(not isinstance(f, Exception) for f in found), found[0]
        return [f.completion for f in found]


@pytest.mark.parametrize(
    ("pattern", "temperature"), [("ab?(cd)?", 1.0), ("[ab]{1,2}x", 1.0), ("[ab]{1,2}x", 2.5)]
)
def test_an_enumerated_language_passes_chi_square_on_5000_samples(pattern, temperature) -> None:
    truth = conditional(pattern, temperature)
    drawn = Asker().draws(5000, pattern, temperature=temperature)
    counts = collections.Counter(c.output_ids for c in drawn)
    assert counts.keys() <= truth.keys()
    expected = [5000 * p for p in truth.values()]
    assert stats.chisquare([counts[o] for o in truth], expected).pvalue > 1e-3


@pytest.mark.parametrize("pattern", LANGUAGES)
def test_the_reported_probabilities_have_no_divergence_from_the_true_ones(pattern) -> None:
    truth = conditional(pattern)
    for completion in Asker().draws(200, pattern):
        report = completion.exact
        assert report.enumerated
        assert report.effective_sample_size is None
        assert report.weighed == len(truth)
        assert report.conditional_logprob == pytest.approx(math.log(truth[completion.output_ids]))
        whole = sum(math.exp(score(PROMPT, o)) for o in outputs(pattern))
        assert report.language_logprob == pytest.approx(math.log(whole))


@pytest.mark.parametrize(
    ("temperature", "bound"),
    # Candidates are drawn at temperature 1, so that at another one fewer of them are of use.
    [(1.0, 0.01), (1.7, 0.03)],
)
def test_resampled_candidates_come_close_to_the_truth_where_masking_does_not(
    temperature, bound
) -> None:
    pattern = "[ab]{1,2}x"
    truth = conditional(pattern, temperature)
    asker = Asker(max_strings=5, candidates=64)
    drawn = asker.draws(800, pattern, temperature=temperature)
    assert not any(c.exact.enumerated for c in drawn)
    assert all(1 <= c.exact.effective_sample_size <= 64 for c in drawn)
    counts = collections.Counter(c.output_ids for c in drawn)
    exact = divergence(counts, truth)
    masked = collections.Counter(
        tuple(entry.token_id for entry in asker.loop.draw(request)[0])
        for request in asker.loop.seen[:2000]
        if request.constraint is not None
    )
    assert exact <= bound < divergence(masked, truth)


def divergence(counts, truth):
    """KL in nats of the drawn frequencies from the truth, less its bias (Miller and Madow)."""
    total = sum(counts.values())
    plain = sum(n / total * math.log(n / total / truth[o]) for o, n in counts.items())
    return plain - (len(counts) - 1) / (2 * total)


@pytest.mark.parametrize(("pattern", "limit"), [("ab?(cd)?", 20), ("(yes|no|maybe so)", 3)])
def test_the_estimated_probability_of_the_language_is_unbiased(pattern, limit) -> None:
    asker = Asker(max_strings=1, candidates=8)
    drawn = asker.draws(1500, pattern, max_new_tokens=limit)
    estimates = np.exp([c.exact.language_logprob for c in drawn])
    whole = sum(math.exp(score(PROMPT, o)) for o in outputs(pattern) if len(o) <= limit)
    error = estimates.std() / math.sqrt(len(estimates))
    assert abs(estimates.mean() - whole) < 4 * error
    assert error < 0.05 * whole


@pytest.mark.parametrize("pattern", LANGUAGES)
def test_greedy_takes_the_most_probable_output(pattern) -> None:
    truth = conditional(pattern)
    (completion,) = Asker().draws(1, pattern, temperature=0.0)
    assert completion.output_ids == max(truth, key=truth.get)


def test_a_seed_draws_the_same_again_and_others_differ() -> None:
    asker = Asker()
    pattern = "[ab]{1,2}x"
    first = [asker.draws(1, pattern, seed=s)[0].output_ids for s in range(30)]
    again = [asker.draws(1, pattern, seed=s)[0].output_ids for s in range(30)]
    assert first == again
    assert len(set(first)) > 1


def test_all_outputs_are_scored_together_behind_one_hint_of_the_prompt() -> None:
    asker = Asker()
    asker.draws(1, "(yes|no|maybe so)")
    hint, *scored = asker.loop.seen
    assert (hint.tokens, hint.wants, hint.followers) == (PROMPT, Wants.NOTHING, 3)
    assert [r.after for r in scored] == [hint.id] * 3
    assert {r.tokens[2:] for r in scored} == set(outputs("(yes|no|maybe so)"))


def test_languages_are_enumerated_up_to_the_limit_and_no_further() -> None:
    pattern = "[ab]{1,2}x"
    for limit, enumerated in ((6, True), (5, False)):
        (completion,) = Asker(max_strings=limit, candidates=4).draws(1, pattern)
        assert completion.exact.enumerated is enumerated
    (completion,) = Asker(candidates=4).draws(1, "a*b", max_new_tokens=100)
    assert not completion.exact.enumerated


def test_outputs_beyond_the_limit_on_tokens_are_left_out() -> None:
    drawn = Asker().draws(300, "(yes|no|maybe so)", max_new_tokens=3, temperature=9.0)
    assert {c.text for c in drawn} == {"yes", "no"}
    assert all(c.exact.weighed == 2 for c in drawn)
    drawn = Asker(max_strings=1, candidates=16).draws(100, "(yes|no|maybe so)", max_new_tokens=3)
    assert {c.text for c in drawn} <= {"yes", "no"}
    for sampler in ({}, {"max_strings": 1}):
        (error,) = Asker(**sampler).answers("r", pattern="(yes|no|maybe so)", max_new_tokens=1)
        assert isinstance(error, ConfigError)
        assert "max_new_tokens" in str(error)


def test_an_empty_language_of_one_empty_text_is_right() -> None:
    (completion,) = Asker().draws(1, "")
    assert (completion.text, completion.output_ids) == ("", ())


@pytest.mark.parametrize(
    "params",
    [{"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.1}, {"frequency_penalty": 1.0}, {"stop": ("x",)},
     {"presence_penalty": 1.0}, {"repetition_penalty": 2.0}, {"logit_bias": ((1, 1.0),)},
     {"stop_token_ids": (3,)}, {"ignore_eos": True}, {"min_new_tokens": 1}],
    ids=lambda p: next(iter(p)),
)  # fmt: skip
def test_what_would_be_another_distribution_is_refused_by_name(params) -> None:
    asker = Asker()
    (error,) = asker.answers("r", pattern="ab?", **params)
    assert isinstance(error, ConfigError)
    assert next(iter(params)) in str(error)
    assert not asker.loop.seen


def test_candidates_of_the_retokenizing_jump_are_refused_and_few_texts_are_not() -> None:
    asker = Asker(jump=RetokenizeSpec(), max_strings=3)
    (error,) = asker.answers("r", pattern="[ab]{1,2}x")
    assert "jump: tokens" in str(error)
    assert asker.draws(1, "(yes|no|maybe so)")[0].exact.enumerated


def test_a_prompt_without_room_and_a_bad_pattern_fail_and_free_their_hint() -> None:
    asker = Asker(max_len=3)
    (error,) = asker.answers("r", pattern="ab", prompt=(1, 2, 3), after="hint")
    assert isinstance(error, PromptTooLong)
    (error,) = asker.answers("r", pattern="(", after="hint")
    assert isinstance(error, GrammarError)
    assert asker.loop.released == [("hint", 1), ("hint", 1)]


def test_an_aborted_request_aborts_what_was_asked_for_it_and_hears_so_once() -> None:
    asker = Asker()
    asker.loop.silent = True
    asker.ask("r", pattern="(yes|no)", after="outer")
    asker.loop.run(lambda: asker.loop.seen)
    assert asker.loop.seen[0].after == "outer"
    asker.sampler.abort("r")
    asker.loop.run(lambda: asker.heard)
    assert isinstance(asker.heard["r"], RequestAborted)
    assert {r.id for r in asker.loop.seen} <= set(asker.loop.aborted)
    assert not asker.loop.released


def test_an_id_in_use_is_refused_and_the_first_goes_on() -> None:
    asker = Asker()
    errors = []
    asker.ask("r", pattern="(yes|no)")
    request = Request("r", PROMPT, constraint=Constraint(ConstraintKind.REGEX, "ab"))
    asker.sampler.submit([(request, errors.append)])
    asker.loop.run(lambda: asker.heard and errors)
    assert "in use" in str(errors[0])
    assert asker.heard["r"].completion.text in ("yes", "no")


# -------------------------------------------------------------------- on the tiny engine


def make(**grammar):
    return sgl.Engine(
        "random:tiny", dtype="float32", max_context_len=256, max_running=8, kv_tokens=1600,
        token_budget=256, debug_checks=True, grammar=grammar,
    )  # fmt: skip


@pytest.fixture(scope="module")
def local():
    with make() as engine:
        yield engine


def engine_truth(local, prompt, texts):
    """Conditional probabilities of texts, from the scores of an engine that samples locally."""
    ids = local.tokenizer.encode(prompt)
    results = local.generate(
        input_ids=[[*ids, *local.tokenizer.encode(t)] for t in texts],
        sampling_params={"max_new_tokens": 1, "temperature": 0.0},
        return_logprob=True,
        logprob_start_len=len(ids) - 1,
    )
    scores = [sum(e[0] for e in r["meta_info"]["input_token_logprobs"][1:]) for r in results]
    weights = np.exp(scores)
    return dict(zip(texts, weights / weights.sum(), strict=True)), math.log(weights.sum())


TEXTS = ["".join(t) for t in itertools.product("aeiou", "xy")]


def test_the_engine_draws_from_the_true_conditional(local) -> None:
    truth, whole = engine_truth(local, "Ask", TEXTS)
    with make(sampler={"type": "exact"}) as engine:
        results = engine.generate("Ask", {"regex": "[aeiou][xy]", "n": 200})
        reports = {r["text"]: r["meta_info"]["exact"] for r in results}
        # The whole distribution that it draws from is reported, piece by piece.
        kl = sum(
            truth[t] * (math.log(truth[t]) - reports[t]["conditional_logprob"]) for t in reports
        )
        assert abs(kl) < 1e-4
        assert sum(truth[t] for t in reports) > 0.99
        assert reports[results[0]["text"]]["language_logprob"] == pytest.approx(whole, abs=1e-3)
        likely = [t for t in TEXTS if truth[t] * 200 > 5]
        counts = collections.Counter(r["text"] for r in results)
        observed = [counts[t] for t in likely] + [200 - sum(counts[t] for t in likely)]
        expected = [200 * truth[t] for t in likely]
        expected.append(200 - sum(expected))
        assert stats.chisquare(observed, expected).pvalue > 1e-4
        assert engine.flush_cache()
        greedy = engine.generate("Ask", {"regex": "[aeiou][xy]", "temperature": 0.0})
        assert greedy["text"] == max(truth, key=truth.get)


@pytest.mark.parametrize("jump", ["none", "tokens", "string"])
def test_candidates_of_the_engine_weigh_what_their_masks_left(local, jump) -> None:
    # The mean weight estimates the language's probability without bias, whatever jumps forced.
    texts = [f"{a}={b}" for a in "aeiou" for b in "xy"]
    _, whole = engine_truth(local, "Ask", texts)
    sampler = {"type": "exact", "max_strings": 1, "candidates": 24}
    with make(sampler=sampler, jump={"type": jump}) as engine:
        results = engine.generate("Ask", {"regex": "[aeiou]=[xy]", "n": 12})
        estimates = [r["meta_info"]["exact"]["language_logprob"] for r in results]
        ratios = np.exp(np.array(estimates) - whole)
        assert ratios.mean() == pytest.approx(1, abs=4 * ratios.std() / math.sqrt(12) + 1e-3)
        assert ratios.std() < 1
        assert (engine.get_server_info()["forced_tokens"] > 0) == (jump != "none")


def test_plain_rows_streams_and_log_probabilities_go_on_beside_it(local) -> None:
    plain = {"temperature": 0.0, "max_new_tokens": 6, "ignore_eos": True}
    with make(sampler={"type": "exact"}) as engine:
        mixed = engine.generate(
            ["Ask", "Other", "Third"],
            [{"regex": "(one|two)"}, plain, {"regex": "("}],
            return_logprob=True,
        )
        assert mixed[1]["output_ids"] == local.generate("Other", plain)["output_ids"]
        assert mixed[2]["meta_info"]["finish_reason"]["error"] == "GrammarError"
        entries = mixed[0]["meta_info"]["output_token_logprobs"]
        assert [e[1] for e in entries] == mixed[0]["output_ids"]
        assert all(e[0] < 0 for e in entries)
        (piece,) = list(engine.generate("Ask", {"regex": "(one|two)"}, stream=True))
        assert piece["text"] in ("one", "two")
        assert piece["meta_info"]["finish_reason"] == {"type": "stop", "matched": None}
    with pytest.raises(SgjaxError, match="shut down"):
        engine.generate("Ask", {"regex": "(one|two)"})


def test_programs_of_the_language_run_above_it() -> None:
    @sgl.function
    def ask(s, number):
        s += "A beginning that all share. "
        s += f"{number}: "
        s += sgl.gen("word", regex="(one|two)", max_tokens=8, temperature=1.0)

    with make(sampler={"type": "exact"}) as engine:
        states = ask.run_batch([{"number": i} for i in range(4)], backend=engine)
        assert {state["word"] for state in states} <= {"one", "two"}
        assert all(state.get_meta_info("word")["exact"]["enumerated"] for state in states)
        assert engine.flush_cache()


def test_the_sampler_is_checked_when_the_engine_is_configured() -> None:
    with pytest.raises(ConfigError, match="candidates=0"):
        make(sampler={"type": "exact", "candidates": 0})
    with pytest.raises(ConfigError, match="sampler"):
        make(sampler={"type": "exakt"})
    assert GrammarSpec().sampler == LocalSamplerSpec()
    sim = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b"}
    with pytest.raises(ConfigError, match="exact"):
        sgl.Engine(executor=sim, grammar={"sampler": {"type": "exact"}})
