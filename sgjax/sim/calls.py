"""What a call costs in systems that call a model: host time, passes beyond its tokens, selects.

HOST. Imports schedule and its neighbours. SGLang's runtime is its own server; Guidance and LMQL
stand above one. What they do in Python for a call, and which passes they ask a model for, is their
own, and is the same whatever the model answers. One call at a time has its exact cost; calls
that run beside one another are charged as if each were alone.
"""

import zlib
from dataclasses import dataclass, fields
from typing import Literal

from sgjax.errors import ConfigError
from sgjax.schedule import Plan, PlanRow, Sequence
from sgjax.sim.executor import Cost
from sgjax.sim.roofline import Roofline, Work
from sgjax.typed import FORBID_EXTRA
from sgjax.types import Wants


@dataclass(frozen=True)
class CallSpec:
    """What calls cost beside the steps that their tokens need.

    Attributes:
        call_s: host seconds of a call before its request is seen, beside `tokenize_s`.
        token_s: host seconds of a sampled token, between two passes.
        forced_s: host seconds of a token that a grammar writes without sampling.
        further_passes: passes of one token that a call makes beyond those of its output, each with
            its `token_s`; a select makes none.
        chunk: output tokens that are asked for at once; each chunk computes all before it again,
            as nothing is kept, and the last runs to its end whatever is wanted of it. Its time
            passes before its first token. None asks for the whole output.
        selects: "scored": each choice is a request, as SGLang does it; "walked": a select samples
            until one choice is left, at the cost of a call for one token and of its first choice's
            other tokens as forced ones.
    """

    __pydantic_config__ = FORBID_EXTRA
    call_s: float = 0.0
    token_s: float = 0.0
    forced_s: float = 0.0
    further_passes: int = 0
    chunk: int | None = None
    selects: Literal["scored", "walked"] = "scored"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in ("chunk", "selects") and value < 0:
                raise ConfigError(f"calls: {field.name}={value} is negative; allowed: 0 or more")
        if self.chunk is not None and self.chunk < 1:
            raise ConfigError(f"calls: chunk={self.chunk} is not allowed; 1 or more, or null")


class Walks:
    """Tell the request that stands for a walked select from those of its other choices.

    They come one after another and share all tokens before their choices.
    """

    def __init__(self) -> None:
        self._prompt = -1
        self._first = ""

    def is_spared(self, seq: Sequence) -> bool:
        """Return whether a request scores a further choice of the select that came last."""
        if seq.request.wants is not Wants.LOGPROBS or seq.request.id == self._first:
            return False
        prompt = zlib.crc32(seq.tokens.view(0, choice_start(seq)).tobytes())
        if prompt == self._prompt:
            return True
        self._prompt, self._first = prompt, seq.request.id
        return False


def choice_start(seq: Sequence) -> int:
    """Return the index of a scored choice's first token."""
    start = seq.request.logprob_start
    assert start is not None
    return start + 1


class CallCost:
    """Seconds a step takes with what its calls cost; a `Cost`.

    Args:
        cost: of a step without calls.
        roofline: of passes that the plan does not have.
        spec: what calls cost.
    """

    def __init__(self, cost: Cost, roofline: Roofline, spec: CallSpec) -> None:
        self._cost, self._roofline, self._spec = cost, roofline, spec
        self._walks = Walks()

    def __call__(self, plan: Plan) -> float:
        """Return the seconds a step takes."""
        rows: list[PlanRow] = []
        beside_s = 0.0
        for row in plan.rows:
            asked = self._asked(row)
            if asked is not None:
                rows.append(asked)
                beside_s += self._beside_s(asked)
        if not rows:
            return beside_s
        tokens = sum(row.num_tokens for row in rows)
        return self._cost(Plan(plan.step, tuple(rows), tokens)) + beside_s

    def _asked(self, row: PlanRow) -> PlanRow | None:
        """Return what a model is asked for in a row's place; None for nothing."""
        seq, chunk = row.seq, self._spec.chunk
        if self._is_walk(seq):
            return None if self._walks.is_spared(seq) else _walk(row)
        if chunk is None or not row.sample or not seq.num_output:
            return row
        return None if seq.num_output % chunk else row._replace(start=0)

    def _beside_s(self, row: PlanRow) -> float:
        """Return the seconds that a row's calls take beside the step."""
        spec, seq = self._spec, row.seq
        if not row.sample:
            return 0.0
        forced = passes = 0
        if self._is_walk(seq):
            forced = seq.num_prompt - choice_start(seq) - 1
        elif not seq.num_output:
            passes = spec.further_passes
        elif row.start >= seq.num_prompt:
            forced = row.num_tokens - 1 - len(row.guesses)
        passes += (spec.chunk or 1) - 1
        device_s = sum(
            self._roofline.seconds(Work(1, 1, row.end + i, row.end + i))
            for i in range(1, passes + 1)
        )
        host_s = (len(row.sampled) + passes) * spec.token_s + forced * spec.forced_s
        return device_s + host_s

    def _is_walk(self, seq: Sequence) -> bool:
        return self._spec.selects == "walked" and seq.request.wants is Wants.LOGPROBS


def _walk(row: PlanRow) -> PlanRow | None:
    """Return the pass over a select's prompt, sampled where the row ends its request."""
    begin, is_last = choice_start(row.seq), row.end == row.seq.num_prompt
    if is_last:
        return PlanRow(row.seq, min(row.start, begin - 1), begin, sample=True)
    if row.start >= begin:
        return None
    return PlanRow(row.seq, row.start, min(row.end, begin), sample=False)
