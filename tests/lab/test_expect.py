"""Expectations against Python's own evaluation, and what the small language refuses."""

import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgjax.errors import ConfigError
from sgjax.lab.expect import Name, judge, parse_expectation

VALUES = {"full": {"rate": 6.0, "tokens": 8.0}, "plain": {"rate": 1.5, "tokens": 40.0}}

atoms = st.sampled_from(["full.rate", "full.tokens", "plain.rate", "plain.tokens", "2", "0.8"])
terms = st.recursive(
    atoms,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/"]), inner)
        | st.builds("-{}".format, inner)
    ),
    max_leaves=6,
)
comparisons = st.builds(
    "{} {} {} {} {}".format,
    terms,
    st.sampled_from([">", ">=", "<", "<=", "==", "!="]),
    terms,
    st.sampled_from([">", "<=", "=="]),
    terms,
)


def lookup(name):
    return VALUES.get(name.variant, {}).get(name.metric)


@given(comparisons)
def test_verdict_is_what_python_says(source):
    names = {name: SimpleNamespace(**values) for name, values in VALUES.items()}
    verdict = judge(parse_expectation(source), lookup)
    try:
        eval(re.sub("[<>=!]+", ",", source), {}, names)  # all sides: a chain may skip the last
        expected = eval(source, {}, names)
    except ZeroDivisionError:
        assert verdict.holds is None
    else:
        assert verdict.holds is expected


def test_detail_shows_both_sides():
    verdict = judge(parse_expectation("full.rate / plain.rate >= 0.8 * 5"), lookup)
    assert (verdict.word, verdict.detail) == ("holds", "4 >= 4")
    verdict = judge(parse_expectation("full.rate > full.tokens"), lookup)
    assert (verdict.word, verdict.detail) == ("does not hold", "6 > 8")


def test_means_are_compared_as_values_are():
    expectation = parse_expectation("mean(full.rate) >= 0.96 * mean(plain.rate)")
    assert expectation.on_means
    assert not expectation.on_each
    assert expectation.names == (Name("full", "rate"), Name("plain", "rate"))
    assert judge(expectation, lookup).detail == "6 >= 1.44"
    assert parse_expectation("full.rate > 1").on_each


def test_values_of_a_workload_are_compared_once():
    expectation = parse_expectation("chat.full.rate >= 2 * judge.full.rate")
    assert not expectation.on_each
    assert not expectation.on_means
    assert expectation.names == (Name("full", "rate", "chat"), Name("full", "rate", "judge"))
    by_workload = {"chat": 6.0, "judge": 2.5}
    assert judge(expectation, lambda name: by_workload[name.workload]).detail == "6 >= 5"
    verdict = judge(expectation, lambda name: {"chat": 6.0}.get(name.workload))
    assert verdict.detail == "no value of judge.full.rate"


@pytest.mark.parametrize(
    "source",
    [
        "mean(full.rate) > plain.rate",
        "chat.full.rate > plain.rate",
        "chat.full.rate > mean(plain.rate)",
    ],
)
def test_values_of_different_kinds_are_not_compared(source):
    with pytest.raises(ConfigError, match="like with like"):
        parse_expectation(source)


def test_missing_values_are_not_measured_rather_than_false():
    verdict = judge(parse_expectation("full.rate > other.rate"), lookup)
    assert (verdict.holds, verdict.detail) == (None, "no value of other.rate")


@pytest.mark.parametrize(
    "source",
    [
        "full.rate >",
        "full.rate",
        "full.rate > open('x')",
        "full.rate > rate",
        "chat.full.a.b > 1",
        "mean(chat.full.rate) > 1",
        "full.rate > 'x'",
        "full.rate > True",
        "full.rate in full.tokens",
        "full.rate > 2 ** 9",
        "full.rate > (1 if full.rate else 2)",
        "full.rate > [1][0]",
    ],
)
def test_more_than_comparisons_of_metrics_is_refused(source):
    with pytest.raises(ConfigError, match="expect"):
        parse_expectation(source)
