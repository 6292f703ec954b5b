"""select: scores against a reference, boundary tokens, and the draw."""

import itertools
import math
from collections import Counter

import pytest

import sgjax as sgl
from sgjax.lang.backends.base import ChoiceLogprobs
from sgjax.lang.backends.boundary import MAX_TOKENISATIONS, stable_prefix, tokenisations
from sgjax.lang.choices import METHODS, decide
from sgjax.tokens import sentencepiece
from sgjax.tokens.base import Tokenizer
from sgjax.tokens.byte import ByteTokenizer
from sgjax.tokens.gguf import tokenizer_from_gguf
from sgjax.types import Wants
from tests.lang.sim_engine import SimEngine
from tests.lang.table_engine import TableEngine, logsumexp, reference_score
from tests.tokens.test_vocabularies import GOLDEN, gguf_metadata, train_smollm_like


@pytest.fixture(scope="module", params=["bytes", "byte-level", "sentencepiece"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "bytes":
        return ByteTokenizer()
    if request.param == "byte-level":
        return tokenizer_from_gguf(gguf_metadata(train_smollm_like()))
    vocab = sentencepiece.read_model(GOLDEN / "sentencepiece.model")
    return sentencepiece.build(vocab, add_bos=True, end_ids=frozenset({2}), chat_template=None)


def lp(*tokens: float, every: tuple[float, ...] = (), alone: tuple[float, ...] = ()) -> object:
    return ChoiceLogprobs(tokens, every, alone)


@pytest.mark.parametrize(
    ("method", "logprobs", "winner"),
    [
        (sgl.token_length_normalized, [lp(-1.0), lp(-0.5, -1.0)], 1),
        (sgl.token_length_normalized, [lp(-0.7), lp(-0.5, -1.0)], 0),
        (sgl.greedy_token_selection, [lp(-0.7, -9.0), lp(-0.8, -0.1)], 0),
        (sgl.greedy_token_selection, [lp(-0.7, -9.0), lp(-0.7, -0.1)], 1),
        (sgl.greedy_token_selection, [lp(-0.7), lp(-0.7, -0.8)], 0),
        (
            sgl.unconditional_likelihood_normalized,
            [lp(-1.0, alone=(-1.0,)), lp(-2.0, alone=(-5.0,))],
            1,
        ),
        (
            sgl.sequence_likelihood,
            [lp(-1.0, every=(-1.0,)), lp(-1.2, every=(-1.2, -1.2))],
            1,
        ),
    ],
)
def test_each_method_picks_by_its_definition(
    method: object, logprobs: list[ChoiceLogprobs], winner: int
) -> None:
    decision = decide(method, ["a", "b"], logprobs, 0.0, None)  # type: ignore[arg-type]
    assert decision.index == winner


def test_a_temperature_draws_from_the_softmax_of_the_scores() -> None:
    logprobs = [ChoiceLogprobs((math.log(p),)) for p in (0.2, 0.5, 0.3)]
    draws = Counter(
        decide(sgl.token_length_normalized, "abc", logprobs, 1.0, str(seed)).index
        for seed in range(4000)
    )
    assert [round(draws[i] / 4000, 1) for i in range(3)] == [0.2, 0.5, 0.3]
    sharp = Counter(
        decide(sgl.token_length_normalized, "abc", logprobs, 0.05, str(seed)).index
        for seed in range(200)
    )
    assert sharp[1] > 190


def test_a_method_without_probabilities_cannot_draw(backend: sgl.ScriptedBackend) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.select("a", ["p", "q"], 0.5, sgl.greedy_token_selection)

    with pytest.raises(sgl.ProgramError, match="greedy_token_selection gives no probabilities"):
        program.run(backend=backend)


def boundary(tokenizer: Tokenizer, prompt: str, choices: list[str]) -> tuple[int, list[list[int]]]:
    """Find the choices' region the slow way: the longest prefix all texts share, token by token."""
    own = tokenizer.encode(prompt, add_bos=True)
    whole = [tokenizer.encode(prompt + choice, add_bos=True) for choice in choices]
    start = 0
    while start < len(own) and all(w[start : start + 1] == [own[start]] for w in whole):
        start += 1
    return start, whole


CASES = [
    ("The answer is", [" yes", " no", " maybe so"]),
    ("The answer is ", ["yes", "no"]),  # the space merges with what follows
    ("The licen", ["se", "sor", "xyz"]),  # the word goes on, and may merge
    ("Value: 1", ["0", "2", "00"]),
    ("naïve caf", ["é", "es"]),
]


@pytest.mark.parametrize(("prompt", "choices"), CASES)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_scores_cover_the_choices_own_region_and_agree_with_the_reference(
    tokenizer: Tokenizer, prompt: str, choices: list[str], method: object
) -> None:
    engine = TableEngine(tokenizer)

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += prompt + sgl.select("a", choices, choices_method=method)

    start, whole = boundary(tokenizer, prompt, choices)
    if method is sgl.sequence_likelihood:
        ways = [spellings(tokenizer, w[start:]) for w in whole]
        if max(map(len, ways)) > MAX_TOKENISATIONS:
            with pytest.raises(sgl.ProgramError, match="tokenisations"):
                program.run(backend=engine)
            return
        expected = [
            logsumexp([sum(reference_score(w[:start], way)) for way in spelled])
            for w, spelled in zip(whole, ways, strict=True)
        ]
        assert program.run(backend=engine).get_meta_info("a")["scores"] == pytest.approx(expected)
        return
    meta = program.run(backend=engine).get_meta_info("a")
    expected_tokens = [reference_score(w[:start], w[start:]) for w in whole]
    assert meta["choice_token_logprobs"] == [pytest.approx(t) for t in expected_tokens]
    if method is sgl.token_length_normalized:
        means = [sum(t) / len(t) for t in expected_tokens]
        assert meta["scores"] == pytest.approx(means)


def spellings(tokenizer: Tokenizer, tokens: list[int]) -> list[list[int]]:
    """Return all tokenisations of some tokens' bytes, by trying every way to cut them."""
    data = b"".join(tokenizer.token_bytes(t) for t in tokens)
    special = tokenizer.special_ids | tokenizer.end_ids
    table: dict[bytes, list[int]] = {}
    for token in range(tokenizer.vocab_size):
        if token not in special:
            table.setdefault(tokenizer.token_bytes(token), []).append(token)
    found = []
    for cuts in range(2 ** (len(data) - 1)):
        edges = [0, *(i + 1 for i in range(len(data) - 1) if cuts >> i & 1), len(data)]
        parts = [data[a:b] for a, b in itertools.pairwise(edges)]
        found += [list(way) for way in itertools.product(*(table.get(p, []) for p in parts))]
    return found


def test_tokenisations_are_refused_where_there_are_too_many() -> None:
    tokenizer = tokenizer_from_gguf(gguf_metadata(train_smollm_like()))
    with pytest.raises(sgl.ConfigError, match="tokenisations, more than the 256"):
        tokenisations(tokenizer, b" the license the license the license")

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "x" + sgl.select(
            "a", [" the license the license the license"], choices_method=sgl.sequence_likelihood
        )

    with pytest.raises(sgl.ProgramError, match="use shorter choices"):
        program.run(backend=TableEngine(tokenizer))


def test_all_choices_go_out_in_one_batch_behind_one_hint(tokenizer: Tokenizer) -> None:
    engine = TableEngine(tokenizer)

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "The answer is" + sgl.select("a", [" yes", " no", " maybe"])

    program.run(backend=engine)
    ((hint, *choices),) = engine.submitted
    assert (hint.wants, hint.followers) == (Wants.NOTHING, 3)
    assert all(c.after == hint.id and c.tokens[: len(hint.tokens)] == hint.tokens for c in choices)
    assert {c.wants for c in choices} == {Wants.LOGPROBS}


def test_a_select_without_hints_sends_its_choices_only(tokenizer: Tokenizer) -> None:
    engine = TableEngine(tokenizer)

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "The answer is" + sgl.select("a", [" yes", " no"])

    program.run(backend=engine, fork=sgl.ParallelFork(hint=False))
    ((first, second),) = engine.submitted
    assert first.after is second.after is None


def test_a_select_without_a_prompt_is_refused() -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += sgl.select("a", ["yes", "no"])

    with pytest.raises(sgl.ProgramError, match="at least one token of prompt"):
        program.run(backend=TableEngine(ByteTokenizer()))


def test_an_unconditional_score_needs_a_token_to_begin_with() -> None:
    class Endless(ByteTokenizer):
        end_ids = frozenset()

    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        method = sgl.unconditional_likelihood_normalized
        s += "x" + sgl.select("a", ["yes", "no"], choices_method=method)

    with pytest.raises(sgl.ProgramError, match="begins or ends a text"):
        program.run(backend=TableEngine(Endless()))


def test_a_long_prefix_is_nearly_all_stable(tokenizer: Tokenizer) -> None:
    text = "Some words to begin with, and a question: "
    kept = tokenizer.decode(stable_prefix(tokenizer, text))
    assert text.startswith(kept)
    assert kept.startswith("Some words to begin with, and a")


@pytest.mark.parametrize("text", ["The answer is ", "The licen", "a\n\n", "x  ", "naïve caf", "7"])
def test_the_stable_prefix_of_a_text_survives_continuations(
    tokenizer: Tokenizer, text: str
) -> None:
    kept = stable_prefix(tokenizer, text)
    assert len(kept) >= len(tokenizer.encode(text, add_bos=True)) - 16
    for more in ["se", " yes", "\n", "9", "é", "!", "  x", "es"]:
        assert tokenizer.encode(text + more, add_bos=True)[: len(kept)] == kept


def test_a_select_computes_its_prompt_once_and_leaves_nothing_behind(engine: SimEngine) -> None:
    @sgl.function
    def program(s):  # type: ignore[no-untyped-def]
        s += "p" * 200
        s += sgl.select("a", ["yes", "no", "maybe"])

    program.run(backend=engine)
    # The prompt, then per choice the token before it (for its logits) and its own.
    assert engine.get_server_info()["computed_tokens"] == 200 + (1 + 3) + (1 + 2) + (1 + 5)
    engine.check_idle()
