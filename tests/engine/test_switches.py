"""Every optimisation as an object in YAML: without it other counters, and the same text.

Rule 8 for the whole stack, a switch at a time (test_same_text.py has their combinations): requests
sent together, then programs that fork and constrain. Where the way to a constrained text is what is
switched (jump, mask), the language holds, and how many texts agree is reported. No option may be
forgotten: each is a switch, or it is said where it is tested.
"""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgjax.lang.spec import ParallelFork
from tests.engine.switches import (
    ELSEWHERE,
    NO_SWITCH,
    SWITCHES,
    VERDICT,
    Ran,
    all_options,
    run,
    switched,
    without,
)

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def full() -> Callable[[dict[str, Any]], Ran]:
    """Run with everything on, once for each base."""
    found: dict[str, Ran] = {}

    def full(base: dict[str, Any]) -> Ran:
        if str(base) not in found:
            found[str(base)] = run(base, ParallelFork())
        return found[str(base)]

    assert full({}).requests["evicted_tokens"] > 0
    assert full({}).programs["forced_tokens"] > 0
    return full


@pytest.mark.parametrize("name", SWITCHES)
def test_without_an_optimisation_counters_change_and_texts_do_not(
    full: Callable[[dict[str, Any]], Ran], name: str, record_property: Callable[[str, object], None]
) -> None:
    switch = SWITCHES[name]
    on, off = full(switch.base), run({**switch.base, **switch.settings}, switch.fork)
    assert off.texts == on.texts == full({}).texts
    assert off.views == on.views == full({}).views
    assert switch.changes(on, off), (on.requests, off.requests, off.programs)
    assert all(re.fullmatch(VERDICT, verdict) for verdict in off.verdicts)
    agreement = sum(a == b for a, b in zip(off.verdicts, on.verdicts, strict=True))
    record_property("agreeing_verdicts", f"{agreement} of {len(on.verdicts)}")
    assert switch.steers or off.verdicts == on.verdicts


def test_every_option_is_a_switch_or_said_to_be_none() -> None:
    left = without(iter(all_options()), [*ELSEWHERE, *NO_SWITCH])
    assert [option for option in left if option not in switched()] == []


@pytest.mark.parametrize("option", [*ELSEWHERE, *NO_SWITCH])
def test_what_is_said_of_an_option_that_is_no_switch_is_true(option: str) -> None:
    assert without(iter(all_options()), [option]) != all_options(), "there is no such option now"
    assert option not in switched()
    if option in ELSEWHERE:
        file, name = ELSEWHERE[option].split("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
