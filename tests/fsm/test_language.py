"""The language of a pattern is what `re.fullmatch` accepts; what is not regular is refused."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgjax.errors import GrammarError
from sgjax.fsm.automaton import build_char_dfa
from sgjax.fsm.kernels import Budget
from sgjax.fsm.parse import parse, parse_search
from sgjax.fsm.portable import PortableKernels
from sgjax.fsm.tree import matches_text
from sgjax.fsm.utf8 import build_byte_dfa

KERNELS = PortableKernels()


def dfas(pattern, unicode=False):
    chars = build_char_dfa(parse(pattern, unicode=unicode), KERNELS, Budget())
    return chars, build_byte_dfa(chars)


def language_of(pattern, unicode):
    """Return the automata; None where nothing matches, or a lookahead stands in a long repeat."""
    try:
        return dfas(pattern, unicode)
    except GrammarError as error:
        if "matches no text" in str(error) or "lookahead" in str(error):
            return None
        raise


ATOMS = st.sampled_from(
    ["a", "b", "ab", "é", "東", "😀", ".", r"\d", r"\w", r"\s", r"\W", "[a-c]", "[^ab]",
     "[é-東]", r"[\w-]", r"\.", "(?:)", "[^\\x00-\\x7f]", "\n"]
)  # fmt: skip
REGEXES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda p: f"(?:{p[0]}|{p[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}?", "*?"])).map(
            lambda p: f"(?:{p[0]}){p[1]}"
        ),
        st.tuples(st.sampled_from(["(?=", "(?!"]), inner, inner).map(
            lambda p: f"{p[0]}{p[1]}){p[2]}"
        ),
        inner.map(lambda p: f"(?i:{p})"),
    ),
    max_leaves=7,
)
TEXTS = st.text(st.sampled_from("abcABé東京😀 1_.\n-é"), max_size=6)


@settings(max_examples=150, deadline=None)
@given(REGEXES, st.lists(TEXTS, min_size=4, max_size=12), st.booleans())
def test_language_is_that_of_fullmatch(pattern, texts, unicode) -> None:
    flags = 0 if unicode else re.ASCII
    found = language_of(pattern, unicode)
    if found is None:
        return
    chars, data = found
    for text in texts:
        expected = re.fullmatch(pattern, text, flags) is not None
        assert chars.matches(text) == expected, (pattern, text)
        assert data.matches(text.encode()) == expected, (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("", [""], ["a"]),
        ("ab?", ["a", "ab"], ["", "abb"]),
        ("(ab)*", ["", "ab", "abab"], ["a", "aba"]),
        ("^a$", ["a"], ["a\n", ""]),
        (r"\Aa\Z", ["a"], ["a\n"]),
        ("a$\n", ["a\n"], ["a"]),
        ("(a|b$|c)d?", ["ad", "b", "cd"], ["bd"]),
        ("(?=.*1)[a-z0-9]{3}", ["a1b", "1ab"], ["abc"]),
        ("(?!foo|bar)[a-z]{3}", ["fob"], ["foo", "bar"]),
        ("a(?=b)b", ["ab"], ["a"]),
        ("x(a(?=b|$))?b?", ["x", "xa", "xab", "xb"], ["xac"]),
        ("[^a]", ["b", "é", "\U0010ffff"], ["a", ""]),
        ("(?i)straße", ["STRAßE", "straße"], ["strasse"]),
        ("a{0,0}b", ["b"], ["ab"]),
        ("(?:){5}a", ["a"], [""]),
        ("(?s:.)", ["\n"], [""]),
        (".", ["x", "😀"], ["\n", "xx"]),
    ],
)
def test_corner_cases(pattern, yes, no) -> None:
    chars, data = dfas(pattern)
    for text in yes + no:
        assert (re.fullmatch(pattern, text, re.ASCII) is not None) == (text in yes), text
        assert chars.matches(text) == data.matches(text.encode()) == (text in yes), text


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        (r"(a)\1", "backreference"),
        (r"(?<=a)b", "lookbehind"),
        (r"(?<!a)b", "lookbehind"),
        (r"\bword", "b'"),
        (r"(?>a*)a", "atomic"),
        (r"a*+a", "possessive"),
        (r"(a)(?(1)b|c)", "conditional"),
        (r"a^b", "start of the pattern"),
        (r"(a(?=b)b)*", "lookahead"),
        ("(", "unterminated"),
        ("[b-a]", "bad character range"),
        ("[^\\s\\S]", "matches no text"),
        ("a(?!a)a", "matches no text"),
        ("((a{0,1000}){0,1000}){0,1000}", "max_states"),
        ("(" * 3000 + ")" * 3000, "deep"),
        (r"(?u)\w", "unicode: true"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(pattern, named) -> None:
    with pytest.raises(GrammarError, match=named):
        dfas(pattern)


def test_time_budget_is_named() -> None:
    pattern = "(a|b)*a(a|b){14}"  # 2^15 states
    with pytest.raises(GrammarError, match="max_compile_s"):
        build_char_dfa(parse(pattern), KERNELS, Budget(max_s=0.05))


@pytest.mark.parametrize("letter", ["w", "d", "s", "W", "D", "S"])
@pytest.mark.parametrize("unicode", [False, True])
def test_classes_are_those_of_re(letter, unicode) -> None:
    chars, data = dfas(rf"\{letter}", unicode)
    rng = random.Random(letter)
    codes = [*range(0x500), *(rng.randrange(0x110000) for _ in range(3000))]
    matcher = re.compile(rf"\{letter}", 0 if unicode else re.ASCII)
    for code in codes:
        if not 0xD800 <= code <= 0xDFFF:
            expected = matcher.fullmatch(chr(code)) is not None
            assert chars.matches(chr(code)) == data.matches(chr(code).encode()) == expected


def test_ignoring_case_is_as_in_re_for_every_letter() -> None:
    for pattern in ("k", "ſ", "[a-zµÅ]", "[^k]", "İ", "[Ⴀ-Ⴥ]", r"[\dA-F]"):
        for unicode in (False, True):
            chars, _ = dfas(f"(?i){pattern}", unicode)
            matcher = re.compile(f"(?i){pattern}", 0 if unicode else re.ASCII)
            for code in [*range(0x600), 0x2126, 0x212A, 0x212B, *range(0x10A0, 0x1100)]:
                expected = matcher.fullmatch(chr(code)) is not None
                assert chars.matches(chr(code)) == expected, (pattern, unicode, hex(code))


def test_invalid_utf8_never_matches() -> None:
    _, data = dfas(r"(?s:.)*")
    bad_texts = [
        "80",
        "c080",
        "c1bf",
        "e08080",
        "eda080",
        "f5808080",
        "f4908080",
        "f0808080",
        "e69d",
    ]
    for bad in map(bytes.fromhex, bad_texts):
        assert not data.matches(bad), bad
    assert data.matches("é東😀\U0010ffff\u0800\u07ff\uffff".encode())


def test_byte_automaton_is_minimal() -> None:
    for pattern in ("[é-東]{1,3}x|東y", r"(?s:.){2}", "[a-é]+|[b-z]"):
        _, data = dfas(pattern)
        trans = [data.targets(s) for s in range(data.num_states)]
        import numpy as np

        small, _ = KERNELS.minimize(np.stack(trans).astype(np.int32), data.table.accepting)
        assert len(small) == data.num_states


@settings(max_examples=60, deadline=None)
@given(REGEXES, st.lists(TEXTS, min_size=3, max_size=6))
def test_search_and_derivatives_agree_with_re(pattern, texts) -> None:
    try:
        node = parse_search(pattern)
    except GrammarError:
        return
    for text in texts:
        expected = re.search(pattern, text, re.ASCII) is not None
        assert matches_text(node, text) == expected, (pattern, text)
