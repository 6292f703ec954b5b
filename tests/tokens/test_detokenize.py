"""OutputText against the naive rule on whole texts."""

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgjax.tokens.detokenize import OutputText
from sgjax.types import SamplingParams

SPECIAL = 9


class PieceTokenizer:
    """Token i stands for pieces[i]; id SPECIAL is a control token."""

    vocab_size = 1000
    bos_id = None
    end_ids = frozenset({SPECIAL})
    special_ids = frozenset({SPECIAL})
    chat_template = None
    fingerprint = "pieces"
    strips_leading_space = False

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def token_bytes(self, token_id: int) -> bytes:
        return b"<end>" if token_id == SPECIAL else self.pieces[token_id % 100]

    def encode(self, text: str, *, add_bos: bool = False) -> list[int]:
        raise NotImplementedError

    def decode(self, ids: object, *, skip_special: bool = True) -> str:
        raise NotImplementedError


def output(pieces: list[bytes], **params: object) -> OutputText:
    # Ids from 100 on, so that no piece is the control token.
    return OutputText(PieceTokenizer(pieces), SamplingParams.from_dict(params))


def naive_match(text: bytes, stops: list[str]) -> tuple[int, str] | None:
    found = [(text.find(s.encode()), len(s), s) for s in stops if s.encode() in text]
    return (min(found)[0], min(found)[2]) if found else None


# Few letters, so that stop strings and their beginnings are common; some of several bytes.
LETTERS = "ab€🙂é"
stop_lists = st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=3, unique=True)


@st.composite
def cut_texts(draw: st.DrawFn) -> list[bytes]:
    """Return bytes of a text cut anywhere, some of them broken."""
    data = draw(st.text(LETTERS, max_size=12)).encode()
    broken = st.sampled_from([b"\xff", b"\xe2", b"\x82"])
    noise = draw(st.lists(st.tuples(st.integers(0, 40), broken)))
    for at, byte in noise[:2]:
        data = data[:at] + byte + data[at:]
    cuts = sorted({0, len(data), *draw(st.lists(st.integers(0, len(data)), max_size=10))})
    return [data[a:b] for a, b in pairwise(cuts)]


@settings(max_examples=600, deadline=None)
@given(cut_texts(), stop_lists, st.booleans(), st.data())
def test_pieces_add_up_to_the_text_that_the_naive_rule_gives(
    pieces: list[bytes], stops: list[str], no_trim: bool, data: st.DataObject
) -> None:
    out = output(pieces, stop=stops, no_stop_trim=no_trim)
    taken: list[str] = []
    so_far, matched = b"", None
    for i, piece in enumerate(pieces):
        matched = out.append(100 + i)
        so_far += piece
        expected = naive_match(so_far, stops)
        assert matched == (expected[1] if expected else None)
        if data.draw(st.booleans()):
            taken.append(out.take())
        if matched:
            break
    final = out.finish(matched)
    if matched:
        at, stop = naive_match(so_far, stops)  # type: ignore[misc]
        so_far = so_far[: at + (len(stop.encode()) if no_trim else 0)]
    assert final == so_far.decode("utf-8", "replace") == out.text
    taken.append(out.take())
    assert "".join(taken) == final
    assert out.take() == ""


@settings(max_examples=300, deadline=None)
@given(st.text(LETTERS, max_size=12), st.lists(st.integers(0, 60), max_size=12), stop_lists)
def test_a_stream_of_valid_text_never_shows_half_a_character_or_a_stop_string(
    text: str, cuts: list[int], stops: list[str]
) -> None:
    data = text.encode()
    bounds = sorted({0, len(data), *(min(c, len(data)) for c in cuts)})
    pieces = [data[a:b] for a, b in pairwise(bounds)]
    out = output(pieces, stop=stops)
    shown = ""
    for i in range(len(pieces)):
        matched = out.append(100 + i)
        shown += out.take()
        assert text.startswith(shown)
        # All that can be shown is shown: what is held back may begin a stop string, or is a part
        # of one character.
        held = b"".join(pieces[: i + 1])[len(shown.encode()) :]
        begins_stop = any(stop.encode().startswith(held) for stop in stops)
        part = "\ufffd" in held.decode("utf-8", "replace") and len(held) < 4
        assert matched or not held or begins_stop or part
        if matched:
            break
    assert not any(stop in shown for stop in stops)


def test_a_possible_beginning_of_a_stop_string_is_held_back_until_it_is_refuted() -> None:
    out = output([b"one\n", b"\nQ", b"uite"], stop=["\n\nQ:"])
    assert out.append(100) is None
    assert out.take() == "one"
    out.append(101)
    assert out.take() == ""
    out.append(102)
    assert out.take() == "\n\nQuite"


def test_a_stop_string_that_spans_tokens_is_found_and_cut_off_with_what_follows_it() -> None:
    out = output([b"yes S", b"TO", b"P and more"], stop=["STOP"])
    assert [out.append(100), out.append(101), out.append(102)] == [None, None, "STOP"]
    assert out.finish("STOP") == "yes "


def test_no_stop_trim_ends_the_text_with_the_stop_string() -> None:
    out = output([b"yes STOP and more"], stop=["STOP"], no_stop_trim=True)
    assert out.append(100) == "STOP"
    assert out.finish("STOP") == "yes STOP"


def test_of_two_stop_strings_the_one_that_begins_first_wins() -> None:
    out = output([b"xabcd"], stop=["bc", "abcd", "abc"])
    assert out.append(100) == "abc"
    assert out.finish("abc") == "x"


def test_stop_strings_count_only_from_min_new_tokens_on() -> None:
    out = output([b"a", b"b", b"c"], stop=["ab", "ca"], min_new_tokens=4)
    stops = [out.append(100 + token) for token in (0, 1, 2, 0)]  # abca
    assert stops == [None, None, None, "ca"]
    assert out.finish("ca") == "ab"


def test_a_match_stays_reported_while_tokens_follow() -> None:
    out = output([b"a.", b"b"], stop=["."])
    assert out.append(100) == "."
    assert out.append(101) == "."
    assert out.finish(".") == "a"


@pytest.mark.parametrize(("no_trim", "expected"), [(False, "a"), (True, "ab")])
def test_a_stop_token_contributes_text_only_without_trimming(no_trim: bool, expected: str) -> None:
    out = output([b"a", b"b"], stop_token_ids=[101], no_stop_trim=no_trim)
    out.append(100)
    first = out.take()
    out.append(101)
    assert out.finish(101) == expected
    assert first + out.take() == expected


@pytest.mark.parametrize(("skip", "expected"), [(True, "ab"), (False, "a<end>b")])
def test_special_tokens_show_only_when_asked_for(skip: bool, expected: str) -> None:
    out = output([b"a", b"b"], skip_special_tokens=skip)
    for token_id in (100, SPECIAL, 101):
        out.append(token_id)
    assert out.finish(None) == expected


def test_a_broken_end_becomes_a_replacement_character_only_at_the_end() -> None:
    out = output(["é".encode()[:1]])
    out.append(100)
    assert out.take() == ""
    assert out.finish(None) == "\ufffd"
    assert out.take() == "\ufffd"


def test_appending_costs_the_same_in_a_long_text() -> None:
    def cost(length: int) -> float:
        out = output([b" word"], stop=["\n\n", "###"])
        for _ in range(length):
            out.append(100)
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(500):
                out.append(100)
                out.take()
            best = min(best, time.perf_counter() - start)
        return best

    assert cost(40_000) < 5 * cost(100)
