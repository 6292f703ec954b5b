"""Constraints in the scheduler, on the simulator: masks, ends, jumps, rollback, pages."""

import random
import re

import numpy as np
import pytest

from sgjax.cache import LruSpec, PagePool, TreeSpec, build_cache
from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.fsm.jump import NoJump
from sgjax.schedule import (
    PageKeeper,
    Sequence,
)
from sgjax.sim import SimExecutor, linear_cost
from sgjax.types import Constraint, ConstraintKind, FinishKind, Request, SamplingParams
from tests.fsm.small import byte_level
from tests.schedule.constrained import MODES, PATTERNS, TOKENIZERS, Bench


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_outputs_match_their_patterns_and_plain_rows_are_as_alone(kind, mode, page_size) -> None:
    rng = random.Random(f"{kind}{mode}{page_size}")
    # Few pages, so that sequences are retracted amid their output and matched in the tree again.
    bench = Bench(TOKENIZERS[kind](), MODES[mode], page_size=page_size, pages=60 // page_size)
    wanted = {}
    for i in range(60):
        pattern = rng.choice([*PATTERNS, None])
        prompt = [rng.randrange(2, bench.tokenizer.vocab_size) for _ in range(rng.randrange(1, 20))]
        wanted[f"r{i}"] = (prompt, pattern)
        bench.add(f"r{i}", prompt, pattern, new=200 if pattern is not None else 12)
    done = bench.run()
    for name, (prompt, pattern) in wanted.items():
        completion = done[name]
        if pattern is None:
            assert list(completion.output_ids) == greedy(bench.plain, prompt, 12)
            continue
        assert completion.finish.kind is FinishKind.STOP, completion.finish
        assert re.fullmatch(pattern, completion.text, re.ASCII), (pattern, completion.text)
        ends = bench.tokenizer.end_ids
        ids = [t for t in completion.output_ids if t not in ends]
        assert b"".join(map(bench.tokenizer.token_bytes, ids)).decode() == completion.text
    stats = bench.scheduler.stats
    assert stats.retractions > 0 or mode != "none"
    assert (stats.forced_tokens > 0) == (mode != "none")
    assert (stats.rolled_back_tokens > 0) == (mode == "retokenize")
    by_guesses = stats.saved_passes - (stats.forced_tokens - stats.rolled_back_tokens)
    assert 0 <= by_guesses <= stats.guessed_tokens - stats.wrong_guesses


@pytest.mark.parametrize("mode", MODES)
def test_saved_passes_are_the_output_tokens_that_no_pass_was_made_for(mode) -> None:
    bench = Bench(byte_level(), MODES[mode], running=1)
    for i, pattern in enumerate(PATTERNS * 2):
        bench.add(f"r{i}", [5 + i], pattern)
    done = bench.run()
    stats = bench.scheduler.stats
    # One row at a time and no prompt that is cut: each pass but none other samples one token.
    assert stats.forward_passes == stats.rows
    assert stats.saved_passes == sum(len(c.output_ids) for c in done.values()) - stats.rows
    assert (stats.saved_passes == 0) == (mode == "none")


def test_a_jump_that_the_own_tokens_of_the_text_reach_over_is_counted() -> None:
    tokenizer = byte_level()
    pattern = r"(red|blue) (car|bike)"
    text = {"red car": b"red ", "red bike": b"red ", "blue car": b"blue ", "blue bike": b"blue "}
    for mode in MODES:
        bench = Bench(tokenizer, MODES[mode])
        for i in range(12):
            bench.add(f"r{i}", [5 + i], pattern)
        done = bench.run()
        split = 0
        for completion in done.values():
            own, at, ends = tokenizer.encode(completion.text), 0, set()
            for token in own:
                at += len(tokenizer.token_bytes(token))
                ends.add(at)
            assert len(text[completion.text]) not in ends  # the space begins the second word
            # What must follow the first word is the space, up to which these two modes jump.
            split += mode in ("retokenize", "string")
        assert bench.scheduler.stats.split_jumps == split, mode


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_tokens_mode_gives_the_text_and_tokens_of_no_jump_under_canonical_masks(kind) -> None:
    outputs = {}
    for mode in ("none", "tokens"):
        bench = Bench(TOKENIZERS[kind](), MODES[mode], canonical=True)
        for i, pattern in enumerate(PATTERNS * 3):
            bench.add(f"r{i}", [5 + i], pattern)
        done = bench.run()
        outputs[mode] = {name: (c.output_ids, c.text) for name, c in done.items()}
        passes = bench.scheduler.stats.rows
        outputs[mode + " passes"] = passes
    assert outputs["tokens"] == outputs["none"]
    assert outputs["tokens passes"] < outputs["none passes"]


def test_a_token_against_its_mask_fails_its_own_request_only() -> None:
    # As from logits that are not finite, of which sampling makes an arbitrary id.
    bench = Bench(byte_level(), MODES["none"])
    bench.executor = SimExecutor(bench.plain, linear_cost(0.02, 0.001))
    bench.add("constrained", [5], "(Above|Below) Average")
    bench.add("ended", [6], "(Above|Below) Average")
    bench.add("plain", [5], None, new=12)
    end = min(bench.tokenizer.end_ids)
    answers = bench.executor._script
    bench.executor._script = lambda seq: end if seq.request.id == "ended" else answers(seq)
    done = bench.run()
    for name in ("constrained", "ended"):
        assert done[name].finish.kind is FinishKind.ABORT
        assert "no token could be sampled" in str(done[name].finish.error)
    assert list(done["plain"].output_ids) == greedy(bench.plain, [5], 12)


def test_a_complete_text_ends_at_once_and_an_empty_pattern_is_right() -> None:
    bench = Bench(byte_level(), no_jump)
    bench.add("empty", [5], "")
    bench.add("one", [5], "x")
    done = bench.run()
    assert done["empty"].text == ""
    assert done["empty"].finish.kind is FinishKind.STOP
    assert done["one"].text == "x"
    assert len(done["one"].output_ids) == 1


def test_forced_text_counts_against_the_limit_on_new_tokens() -> None:
    bench = Bench(byte_level(), MODES["tokens"])
    bench.add("r", [5], "a{100}b|a{100}c", new=7)
    completion = bench.run()["r"]
    assert completion.finish.kind is FinishKind.LENGTH
    assert len(completion.output_ids) == 7


def test_a_stop_string_inside_forced_text_ends_the_output() -> None:
    bench = Bench(byte_level(), MODES["tokens"])
    bench.add("r", [5], "(one|two) is forced to the end", stop=("forced",))
    completion = bench.run()["r"]
    assert completion.text in ("one is ", "two is ")
    assert completion.finish.matched == "forced"


def test_what_cannot_be_honoured_beside_a_constraint_is_refused() -> None:
    bench = Bench(byte_level(), MODES["tokens"])
    with pytest.raises(ConfigError, match="ignore_eos"):
        bench.add("r", [5], "a", ignore_eos=True)
    with pytest.raises(ConfigError, match="min_new_tokens"):
        bench.add("r", [5], "a", min_new_tokens=2)
    request = Request("r", (5,), SamplingParams(), constraint=Constraint(ConstraintKind.REGEX, "a"))
    with pytest.raises(UnsupportedBackend, match="no grammar"):
        bench.scheduler.add(request)


def no_jump(tokenizer):
    return NoJump()


def greedy(script, prompt, new):
    """Return what the simulated model says to a prompt, alone."""
    request = Request("alone", tuple(prompt))
    seq = Sequence(request, np.array(prompt, np.int64), None, frozenset(), 0, 0, 0.0, 400)
    for _ in range(new):
        seq.tokens.append(script(seq))
    return seq.tokens.view(len(prompt)).tolist()


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("cut", [3, 8, 13, 18, 22])
def test_dropping_tokens_never_gives_up_a_page_of_the_tree_for_writing(page_size, cut) -> None:
    pool = PagePool(60, page_size)
    pages = PageKeeper(pool, build_cache(TreeSpec(), LruSpec(), pool))
    seq = Sequence(Request("r", (5,)), np.arange(23), None, frozenset(), 0, 0, 0.0, 60)
    match = pages.cache.match(seq.tokens.view(0, 0))
    pages.cache.pin(match.node)
    pages.acquire(seq, match)
    pages.fill([seq])
    seq.num_computed = 20
    pages.offer(seq, 14)
    assert seq.shared == 14 // page_size * page_size
    pages.truncate(seq, cut)
    pages.check([seq])
    assert seq.tokens.length == cut
    assert seq.num_computed <= cut
    # What is computed from here on is written to pages of the sequence's own.
    assert seq.shared <= seq.num_computed
    assert seq.num_computed > min(cut, 20) - page_size
    for _ in range(9):
        seq.tokens.append(7)
    pages.grow(*pages.lacking([seq]))
    pages.check([seq])
    pages.release(seq)
    assert pool.counts()["sequence"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_no_jump_leads_where_canonical_masks_leave_nothing(mode) -> None:
    bench = Bench(byte_level(), MODES[mode], canonical=True)
    patterns = [*PATTERNS, r" (Canberra|Sydney|Perth)", r"sky: (clear|cloudy); rain: (none|light)"]
    for i, pattern in enumerate(patterns * 4):
        bench.add(f"r{i}", [5 + i], pattern)
    for completion in bench.run().values():
        assert completion.finish.kind is FinishKind.STOP, completion.finish
