"""Masks against brute force: token bytes walked byte by byte, and completed texts through `re`."""

import random
import re
from pathlib import Path

import numpy as np
import pytest

from sgjax.errors import GrammarError, UnsupportedBackend
from sgjax.fsm.grammar import compile_choices, compile_regex
from sgjax.fsm.kernels import Budget
from sgjax.fsm.native import load_kernels
from sgjax.fsm.portable import PortableKernels
from sgjax.fsm.table import TokenTable
from sgjax.fsm.utf8 import without_bytes
from sgjax.fsm.vocabulary import Vocabulary, unpack_ids
from sgjax.tokens.byte import ByteTokenizer
from tests.fsm.small import byte_level, sentencepiece

TOKENIZERS = {"byte_level": byte_level, "sentencepiece": sentencepiece, "bytes": ByteTokenizer}

PIECES = ["a", "b", "name", '"', "é", "東", "京", "😀", r"\d", r"\w", r"\s", "[a-z]", "[^a-m\n]",
          "[é-東]", ".", " ", "Average", r"[\w ]", r"\{", "\n   "]  # fmt: skip


def random_regex(rng: random.Random, depth: int = 3) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        return rng.choice(PIECES)
    if kind < 0.6:
        return random_regex(rng, depth - 1) + random_regex(rng, depth - 1)
    if kind < 0.8:
        return f"(?:{random_regex(rng, depth - 1)}|{random_regex(rng, depth - 1)})"
    return f"(?:{random_regex(rng, depth - 1)})" + rng.choice(["*", "+", "?", "{1,3}", "{2}"])


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    return load_kernels("c", tmp_path_factory.mktemp("native"))


def brute_force(grammar, tokenizer, vocabulary, state) -> set[int]:
    allowed = {
        token
        for token in range(tokenizer.vocab_size)
        if token not in tokenizer.special_ids | tokenizer.end_ids
        and tokenizer.token_bytes(token)
        and grammar.dfa.walk(state, tokenizer.token_bytes(token)) >= 0
    }
    return allowed | (set(tokenizer.end_ids) if grammar.is_accepting(state) else set())


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_masks_equal_brute_force_in_every_state_of_many_patterns(kind, native) -> None:
    tokenizer = TOKENIZERS[kind]()
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size + 7)  # padded ids are never allowed
    rng = random.Random(kind)
    states = 0
    for _ in range(80):
        pattern = random_regex(rng)
        for kernels in (native, PortableKernels()):
            grammar = compile_regex(pattern, vocabulary, kernels, Budget())
            for state in range(grammar.dfa.num_states):
                row = grammar.rows[grammar.mask_row(state)]
                expected = brute_force(grammar, tokenizer, vocabulary, state)
                assert set(unpack_ids(row).tolist()) == expected, (pattern, state)
                states += 1
            rows = {row.tobytes() for row in grammar.rows}
            assert len(rows) == len(grammar.rows), "equal rows are stored once"
    assert states > 500


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_random_walks_over_masks_end_in_texts_of_the_language(kind) -> None:
    tokenizer = TOKENIZERS[kind]()
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size)
    rng = random.Random(f"walk {kind}")
    finished = 0
    for _ in range(120):
        pattern = random_regex(rng)
        grammar = compile_regex(pattern, vocabulary, PortableKernels(), Budget())
        state, data = grammar.start, b""
        for _ in range(60):
            allowed = unpack_ids(grammar.rows[grammar.mask_row(state)]).tolist()
            assert allowed, "stuck"
            token = rng.choice(allowed)
            if token in tokenizer.end_ids:
                break
            data += tokenizer.token_bytes(token)
            state = grammar.advance(state, token)
            assert state >= 0
        else:
            continue
        assert re.fullmatch(pattern, data.decode(), re.ASCII), (pattern, data)
        finished += 1
    assert finished > 60


def test_both_kernels_build_the_same_automata_and_rows(native) -> None:
    vocabulary = Vocabulary(byte_level(), byte_level().vocab_size)
    rng = random.Random(5)
    for _ in range(60):
        pattern = random_regex(rng, 4)
        one = compile_regex(pattern, vocabulary, native, Budget())
        two = compile_regex(pattern, vocabulary, PortableKernels(), Budget())
        assert np.array_equal(one.dfa.table.delta, two.dfa.table.delta), pattern
        assert np.array_equal(one.dfa.table.row_of, two.dfa.table.row_of), pattern
        for state in range(one.dfa.num_states):
            assert np.array_equal(one.rows[one.mask_row(state)], two.rows[two.mask_row(state)]), (
                pattern
            )


@pytest.mark.parametrize("kernels", ["native", "portable"])
def test_lazy_tables_give_the_rows_of_eager_ones(kernels, native) -> None:
    kernels = native if kernels == "native" else PortableKernels()
    tokenizer = byte_level()
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size)
    dfa = compile_regex(r'"[^"]{1,20}": [a-z]{1,60}', vocabulary, kernels, Budget()).dfa
    eager = TokenTable(dfa, vocabulary, kernels, 1 << 24, eager=True)
    lazy = TokenTable(dfa, vocabulary, kernels, 1 << 24, eager=False)
    assert len(lazy.rows) == 0
    for state in range(dfa.num_states):
        assert np.array_equal(lazy.mask(state), eager.mask(state))
    assert len(lazy.rows) == len(eager.rows)


def test_size_budget_of_masks_is_named() -> None:
    vocabulary = Vocabulary(byte_level(), byte_level().vocab_size)
    with pytest.raises(GrammarError, match="max_bytes"):
        compile_regex("abcdefgh|[a-z ]{3}", vocabulary, PortableKernels(), Budget(max_bytes=200))


def test_a_character_level_grammar_allows_whole_characters_only() -> None:
    tokenizer = byte_level()
    whole = Vocabulary(tokenizer, tokenizer.vocab_size, "char")
    pattern = "(東京|Zürich|abc)[a-z]?"
    grammar = compile_regex("[a-zü]{1,4}", whole, PortableKernels(), Budget())
    for token in unpack_ids(grammar.rows[grammar.mask_row(0)]).tolist():
        tokenizer.token_bytes(token).decode()
    # 東京 has no token of whole characters here for its first character: a dead end, so refused.
    with pytest.raises(GrammarError, match="lacks tokens"):
        compile_regex("東x", whole, PortableKernels(), Budget())
    by_bytes = Vocabulary(tokenizer, tokenizer.vocab_size, "byte")
    assert compile_regex(pattern, by_bytes, PortableKernels(), Budget()).rows.any()


def test_text_with_bytes_that_no_token_has_is_out_of_the_language() -> None:
    tokenizer = byte_level()
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size)
    grammar = compile_regex("(ab|cd|é)+", vocabulary, PortableKernels(), Budget())
    smaller = without_bytes(grammar.dfa, frozenset(b"d"))
    assert smaller.matches("abéab".encode())
    assert not smaller.matches(b"abcd")
    assert smaller.walk(0, b"c") == -1
    with pytest.raises(GrammarError, match="no token"):
        without_bytes(grammar.dfa, frozenset("abcdé".encode()))


def test_choices_are_literal() -> None:
    tokenizer = byte_level()
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size)
    choices = ["a.b", "東京", "😀", "(x", ""]
    grammar = compile_choices(choices, vocabulary, PortableKernels(), Budget())
    for choice in choices:
        assert grammar.dfa.matches(choice.encode())
    assert not grammar.dfa.matches(b"axb")
    for bad in ([], ["\ud800"]):
        with pytest.raises(GrammarError):
            compile_choices(bad, vocabulary, PortableKernels(), Budget())


def test_kernels_are_chosen_once_and_never_quietly_replaced(tmp_path) -> None:
    assert load_kernels("numpy", tmp_path).name == "numpy"
    assert load_kernels("auto", None).name == "numpy"
    assert load_kernels("auto", tmp_path).name == "c"
    assert len(list(Path(tmp_path).glob("*.so"))) == 1
    with pytest.raises(UnsupportedBackend, match="cache folder"):
        load_kernels("c", None)
