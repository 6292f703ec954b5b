"""Judging a compiler of JSON schemas by instances, valid and not.

Imports schema_compilers, tokens and fsm's spec.
"""

import json
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from sgjax.fsm.spec import GrammarSpec
from sgjax.lab.schema_compilers import Compile, Matcher, Refused
from sgjax.tokens.base import Tokenizer


@dataclass(frozen=True)
class Schema:
    """A schema and its instances.

    Attributes:
        id: names it.
        text: its JSON text.
        tests: (whether it is valid, the instance).
    """

    id: str
    text: str
    tests: tuple[tuple[bool, Any], ...]


@dataclass(frozen=True)
class Judged:
    """What a compiler made of one schema.

    Attributes:
        compiled: whether it compiled it.
        compile_s: processor time of that.
        false_accepts, false_rejects: instances judged wrong.
        masks_s: processor time of each mask along the instances.
        reason: why it was refused.
        over_budget: whether that is because it took too long.
    """

    compiled: bool
    compile_s: float
    false_accepts: int = 0
    false_rejects: int = 0
    masks_s: tuple[float, ...] = ()
    reason: str = ""
    over_budget: bool = False

    @property
    def right(self) -> bool:
        """Return whether it compiles and judges every instance right."""
        return self.compiled and not self.false_accepts + self.false_rejects

    @property
    def word(self) -> str:
        """Return the result in words."""
        if not self.compiled:
            return f"refused: {self.reason[:200]}"
        return "passes" if self.right else "compiles, and judges an instance wrong"


def judge(schema: Schema, compiler: Compile, tokenizer: Tokenizer, spec: GrammarSpec) -> Judged:
    """Compile a schema and judge its instances, written in the tokenizer's own tokens."""
    started_s = time.thread_time()
    try:
        make = compiler(schema.text)
    except Refused as refused:
        return Judged(False, time.thread_time() - started_s, reason=str(refused))
    compile_s = time.thread_time() - started_s
    separators = (",", ":") if spec.whitespace == "compact" else (", ", ": ")
    wrong: Counter[bool] = Counter()
    masks_s: list[float] = []
    for valid, data in schema.tests:
        text = json.dumps(data, ensure_ascii=False, separators=separators)
        accepted = _accepts(make(), tokenizer.encode(text), masks_s)
        wrong[valid] += accepted != valid
    return Judged(True, compile_s, wrong[False], wrong[True], tuple(masks_s))


def _accepts(matcher: Matcher, tokens: list[int], masks_s: list[float]) -> bool:
    for token in tokens:
        started_s = time.thread_time()
        matcher.mask()
        masks_s.append(time.thread_time() - started_s)
        if not matcher.advance(token):
            return False
    return matcher.accepts()
