"""Canonical masks against the tokenizer: who may follow whom, and how texts that are left go on."""

import itertools
import random
import re
import unicodedata

import numpy as np
import pytest

from sgjax.fsm import canonical
from sgjax.fsm.canonical import CanonicalGrammar
from sgjax.fsm.grammar import compile_regex
from sgjax.fsm.kernels import Budget
from sgjax.fsm.language import list_texts
from sgjax.fsm.merges import read_merges
from sgjax.fsm.pairs import CanonicalPairs
from sgjax.fsm.portable import PortableKernels
from sgjax.fsm.vocabulary import Vocabulary, unpack_ids
from sgjax.tokens.middle import encode_bytes
from tests.fsm.small import TEXT, byte_level, composing, sentencepiece

TOKENIZERS = {"byte_level": byte_level, "composing": composing, "sentencepiece": sentencepiece}
HARD = [
    "don't we'll ''s '' s 'sx I'M --x -y !!a ...b {d} _e",
    "a   b    c \n \n  x\r\n y\t\tz 12 345 6,789.01 1st x1y2",
    "{\n  --\n\n   x;\n \n.\r\n ]\n \n)\r\r\n",
    "Zürich 東京都 😀😃 e\u0301a\u0301 ½ १२ \u3000x\u2003y \u1112\u1161\u11ab",
]


def is_whole(tokenizer, ids) -> bool:
    try:
        b"".join([tokenizer.token_bytes(i) for i in ids]).decode()
    except UnicodeDecodeError:
        return False
    return True


def asked(tokenizer, tail, token) -> bool:
    """Say whether some text is written so, by encoding it."""
    ids = [*tail, token]
    data = b"".join([tokenizer.token_bytes(i) for i in ids])
    texts = [encode_bytes(tokenizer, data + after) for after in (b"", b"a")]
    return any(own is not None and own[: len(ids)] == ids for own in texts)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_rows_are_what_the_tokenizer_says_of_the_last_two_tokens_and_every_other(kind) -> None:
    tokenizer = TOKENIZERS[kind]()
    assert (read_merges(tokenizer) is None) == (kind == "sentencepiece")
    pairs = CanonicalPairs(tokenizer)
    usable = [i for i in range(tokenizer.vocab_size) if i not in tokenizer.special_ids]
    usable = [i for i in usable if tokenizer.token_bytes(i)]
    seen: set[tuple[int, ...]] = set()
    forbidden = 0
    for text in HARD if kind != "sentencepiece" else [HARD[-1], TEXT[0]]:
        text = unicodedata.normalize("NFC", text) if kind == "composing" else text
        ids = encode_bytes(tokenizer, text.encode())
        assert ids is not None
        tail: tuple[int, ...] = ()
        for at, token in enumerate(ids):
            before = tuple(ids[max(at - 2, 0) : at])
            if is_whole(tokenizer, before) and before not in seen:
                seen.add(before)
                row = pairs.row(tail)
                for other in usable:
                    if is_whole(tokenizer, (*before, other)):
                        said = asked(tokenizer, before, other)
                        assert bool(row[other]) == said, (before, tail, other)
                        forbidden += not said
            assert pairs.row(tail)[token], "a text's own tokens follow each other"
            tail = pairs.follow(tail, token)
    assert len(seen) > 10
    assert forbidden > 100


def grammar_of(pattern, tokenizer, pairs):
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size)
    inner = compile_regex(pattern, vocabulary, PortableKernels(), Budget())
    return CanonicalGrammar(inner, vocabulary, pairs, 1 << 24)


def mask(grammar, state) -> set[int]:
    row = grammar.mask_row(state)
    return set(unpack_ids(grammar.rows[row]).tolist())


@pytest.mark.parametrize("many", [1, 10**6], ids=["all_together", "one_by_one"])
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_masks_are_the_next_tokens_of_the_texts_that_are_left(kind, many, monkeypatch) -> None:
    monkeypatch.setattr(canonical, "_MANY", many)
    tokenizer = TOKENIZERS[kind]()
    pairs = CanonicalPairs(tokenizer)
    for pattern in (
        r'\{"name": "(Harry|Hermione) ?[a-d]{0,2}"\}', r" (red|green)(, | {1,3})(car|big truck)s?",
        "[ab]{1,5}", r"don'(t|s)?|x( |\n){0,3}y", "😀?東京(都|😃)?",
    ):  # fmt: skip
        grammar = grammar_of(pattern, tokenizer, pairs)
        texts = list_texts(grammar.dfa, 500)
        assert texts is not None
        expected: dict[tuple[int, ...], set[int]] = {}
        for text in texts:
            own = encode_bytes(tokenizer, text)
            assert own is not None
            for at, token in enumerate(own):
                expected.setdefault(tuple(own[:at]), set()).add(token)
            expected.setdefault(tuple(own), set()).update(tokenizer.end_ids)
        for output, allowed in expected.items():
            state = grammar.start
            for token in output:
                state = grammar.advance(state, token)
            if allowed == tokenizer.end_ids and grammar.is_final(state):
                continue
            assert mask(grammar, state) == allowed, (pattern, output)


@pytest.mark.parametrize("pattern", [r'"[\w\s.,]+\."', r"[ -~\n]*", r"[a-z .']{2,40}x"])
def test_free_text_has_the_same_masks_together_and_one_by_one(pattern, monkeypatch) -> None:
    tokenizer = byte_level()
    pairs = CanonicalPairs(tokenizer)
    rng = random.Random(pattern)
    finished = 0
    for _ in range(2):
        grammars = [grammar_of(pattern, tokenizer, CanonicalPairs(tokenizer)), None]
        grammars[1] = grammar_of(pattern, tokenizer, pairs)
        states = [grammar.start for grammar in grammars]
        output: list[int] = []
        for _ in range(25):
            masks = []
            for many, grammar, state in zip((1, 10**6), grammars, states, strict=True):
                monkeypatch.setattr(canonical, "_MANY", many)
                masks.append(mask(grammar, state))
            assert masks[0] == masks[1]
            ends = masks[0] & tokenizer.end_ids
            if masks[0] == ends or (ends and rng.random() < 0.1):
                break
            token = rng.choice(sorted(masks[0] - ends))
            output.append(token)
            states = [g.advance(s, token) for g, s in zip(grammars, states, strict=True)]
        data = b"".join(map(tokenizer.token_bytes, output))
        if is_whole(tokenizer, output):
            # White space at the end may be written otherwise once something follows.
            assert encode_bytes(tokenizer, data) == output or data[-1:].isspace()
            finished += re.fullmatch(pattern, data.decode(), re.ASCII) is not None
    assert pattern != r"[ -~\n]*" or finished


def test_rows_begin_anew_where_their_budget_ends() -> None:
    tokenizer = byte_level()
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size)
    inner = compile_regex("[a-z ]*", vocabulary, PortableKernels(), Budget())
    room = 4 * 4 * vocabulary.num_words  # four masks
    grammar = CanonicalGrammar(inner, vocabulary, CanonicalPairs(tokenizer), room)
    state, seen = grammar.start, []
    for token in tokenizer.encode("the quick brown fox jumps over the lazy dog"):
        row = grammar.mask_row(state)
        seen.append((grammar.store, row, grammar.store.rows[row].copy()))
        state = grammar.advance(state, token)
    assert len({id(store) for store, _, _ in seen}) > 1
    for store, row, data in seen:
        assert np.array_equal(store.rows[row], data), "a row that was handed out stays"


def test_what_texts_are_written_in_follows_itself() -> None:
    for kind, text in itertools.product(TOKENIZERS, TEXT):
        tokenizer = TOKENIZERS[kind]()
        pairs, tail = CanonicalPairs(tokenizer), ()
        for token in encode_bytes(tokenizer, text.encode()) or []:
            assert pairs.allows(tail, token)
            tail = pairs.follow(tail, token)
