"""Listing a language's texts and outputs, and choosing one of them by weight."""

import itertools
import math
import random
import re

import numpy as np
import pytest

from sgjax.fsm.grammar import compile_regex
from sgjax.fsm.kernels import Budget
from sgjax.fsm.language import is_own, list_outputs, list_texts
from sgjax.fsm.portable import PortableKernels
from sgjax.fsm.resample import choose
from sgjax.fsm.vocabulary import Vocabulary
from tests.fsm.small import byte_level, sentencepiece


def grammar(pattern, tokenizer):
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size)
    return compile_regex(pattern, vocabulary, PortableKernels(), Budget())


@pytest.mark.parametrize(
    "pattern",
    ["a|b|ab", "a?b?c?", "(a|bc){0,2}", "[ab]{2}c?", "(a|ab)(c|bc)", "", "(?=a)[abc]{1,2}", "c{3}"],
)
def test_the_texts_are_those_that_match(pattern) -> None:
    texts = list_texts(grammar(pattern, byte_level()).dfa, 100)
    every = ("".join(t) for n in range(6) for t in itertools.product("abc", repeat=n))
    expected = {t.encode() for t in every if re.fullmatch(pattern, t)}
    assert set(texts) == expected
    assert len(texts) == len(expected)
    assert list_texts(grammar(pattern, byte_level()).dfa, len(texts)) == texts
    assert list_texts(grammar(pattern, byte_level()).dfa, len(texts) - 1) is None


@pytest.mark.parametrize("pattern", ["a*", "ab+c", "x(ab)*y", "[a-z]{1,200}", r"\w{1,9}"])
def test_a_large_or_infinite_language_is_given_up_early(pattern) -> None:
    assert list_texts(grammar(pattern, byte_level()).dfa, 50) is None


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
def test_outputs_are_the_texts_in_the_tokenizers_own_tokens(make) -> None:
    tokenizer = make()
    pattern = "(Gryffindor|東京|Harry( Potter)?|brown fox)"
    outputs = list_outputs(grammar(pattern, tokenizer), tokenizer, 10)
    texts = ["Gryffindor", "東京", "Harry", "Harry Potter", "brown fox"]
    (end,) = tokenizer.end_ids
    found = {}
    for output in outputs:
        ends = output[-1] == end
        ids = output[:-1] if ends else output
        found[b"".join(map(tokenizer.token_bytes, ids)).decode()] = ends
        assert is_own(tokenizer, output)
    assert found == {text: text == "Harry" for text in texts}


def test_other_tokens_for_the_same_text_are_not_its_own() -> None:
    tokenizer = byte_level()
    single = {tokenizer.token_bytes(i): i for i in range(2, tokenizer.vocab_size)}
    spelled = [single[bytes([b])] for b in b"brown"]
    assert is_own(tokenizer, tokenizer.encode("brown"))
    assert not is_own(tokenizer, spelled)


def test_a_text_that_spells_a_special_token_is_left_out() -> None:
    tokenizer = byte_level()
    outputs = list_outputs(grammar(r"(<\|end\|>|red)", tokenizer), tokenizer, 10)
    assert outputs == (tuple(tokenizer.encode("red")),)


def test_choose_inverts_the_cumulative_weights() -> None:
    log_p = [math.log(p) for p in (0.1, 0.3, 0.05)]
    edges = [0.1 / 0.45, 0.4 / 0.45]
    for u in [0.0, edges[0] - 1e-9, edges[0] + 1e-9, edges[1] - 1e-9, edges[1] + 1e-9, 1 - 1e-9]:
        index, report = choose(log_p, None, 1.0, u)
        assert index == sum(u > edge for edge in edges)
        assert report.conditional_logprob == pytest.approx(log_p[index] - math.log(0.45))
    assert choose(log_p, None, 0.0, 0.0)[0] == 1


def test_proposals_are_weighed_by_what_they_are_worth() -> None:
    log_p, log_q = np.log([0.2, 0.1, 0.1]), np.log([0.5, 0.25, 0.05])
    weights = np.array([0.4, 0.4, 2.0])
    _, report = choose(log_p, log_q, 1.0, 0.0, drawn=4)
    assert report.effective_sample_size == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    # A fourth one had no weight.
    assert math.exp(report.language_logprob) == pytest.approx(weights.sum() / 4)
    rng = random.Random(0)
    counts = np.bincount([choose(log_p, log_q, 1.0, rng.random(), drawn=3)[0] for _ in range(4000)])
    np.testing.assert_allclose(counts / 4000, weights / weights.sum(), atol=0.03)


def test_very_improbable_outputs_do_not_vanish() -> None:
    index, report = choose([-2000.0, -1990.0], None, 1.0, 0.5)
    assert index == 1
    assert report.language_logprob == pytest.approx(-1990, abs=1e-3)
