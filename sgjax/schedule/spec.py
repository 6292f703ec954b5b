"""Schedule's part of the YAML: its strategies as tagged objects, and their builders.

Imports own, typed and its neighbours. See architecture section 8.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from sgjax.errors import ConfigError
from sgjax.own import PythonSpec
from sgjax.schedule.composition import Composition, Mixed, PromptsFirst
from sgjax.schedule.growth import AdaptiveGrowth
from sgjax.schedule.own import OwnPolicy
from sgjax.schedule.policies import (
    AgedLongestPrefixMatch,
    DepthFirstWeighted,
    Fcfs,
    LongestPrefixMatch,
    Policy,
    RandomOrder,
)
from sgjax.schedule.policies_zoo import (
    DeficitLongestPrefix,
    HighestResponseRatio,
    KLongestPrefixMatch,
    VirtualTokenCounter,
)
from sgjax.schedule.reserve import WorkingSet
from sgjax.schedule.siblings import Admit, Defer, SharePlanned, Siblings
from sgjax.schedule.strategies import Look
from sgjax.typed import FORBID_EXTRA, refuse_negative


@dataclass(frozen=True)
class FcfsSpec:
    """First come, first served."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["fcfs"] = "fcfs"


@dataclass(frozen=True)
class RandomSpec:
    """A random order, fixed by `seed`.

    Attributes:
        seed: of the order; None takes the engine's, which an experiment varies.
        anew: shuffle the queue at each look, as SGLang's first release did
            (`get_priority_queue` in its scheduler.py), instead of once.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["random"] = "random"
    seed: int | None = 0
    anew: bool = False

    def __post_init__(self) -> None:
        refuse_negative(seed=self.seed)


@dataclass(frozen=True)
class LpmSpec:
    """Longest cached prefix first (the paper's)."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["lpm"] = "lpm"


@dataclass(frozen=True)
class DfsWeightSpec:
    """Depth-first over the radix tree, heavier subtrees first."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["dfs_weight"] = "dfs_weight"


@dataclass(frozen=True)
class AgedLpmSpec:
    """Longest cached prefix first, but whoever waited `max_wait_s` seconds goes first.

    Attributes:
        max_wait_s: seconds after which a request is overdue.
        hold_s: seconds of longest-prefix order after each overdue request that was let in, so
            that those who share its prefix follow it even where everybody is overdue.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["aged_lpm"] = "aged_lpm"
    max_wait_s: float = 2.0
    hold_s: float = 0.0

    def __post_init__(self) -> None:
        refuse_negative(max_wait_s=self.max_wait_s, hold_s=self.hold_s)


@dataclass(frozen=True)
class KLpmSpec:
    """After `k` picks by longest cached prefix, one by arrival."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["k_lpm"] = "k_lpm"
    k: int = 4

    def __post_init__(self) -> None:
        refuse_negative(k=self.k)


@dataclass(frozen=True)
class HrrnSpec:
    """Most waiting per token to compute first."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["hrrn"] = "hrrn"


@dataclass(frozen=True)
class VtcSpec:
    """The client that was served the fewest tokens first; an output token counts double."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["vtc"] = "vtc"
    output_weight: float = 2.0

    def __post_init__(self) -> None:
        refuse_negative(output_weight=self.output_weight)


@dataclass(frozen=True)
class DlpmSpec:
    """Longest cached prefix first among clients that have `quantum` tokens a round."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["dlpm"] = "dlpm"
    quantum: int = 4096
    output_weight: float = 2.0

    def __post_init__(self) -> None:
        if self.quantum < 1:
            raise ConfigError(f"quantum={self.quantum} is not allowed; it must be >= 1")
        refuse_negative(output_weight=self.output_weight)


PolicySpec = Annotated[
    FcfsSpec
    | RandomSpec
    | LpmSpec
    | DfsWeightSpec
    | AgedLpmSpec
    | KLpmSpec
    | HrrnSpec
    | VtcSpec
    | DlpmSpec
    | PythonSpec,
    Field(discriminator="type"),
]


@dataclass(frozen=True)
class AdmitSpec:
    """Siblings of one step all compute their common prefix (the paper's)."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["admit"] = "admit"


@dataclass(frozen=True)
class DeferSpec:
    """A request waits while at least `min_tokens` more of its prefix are being computed."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["defer"] = "defer"
    min_tokens: int = 16

    def __post_init__(self) -> None:
        if self.min_tokens < 1:
            raise ConfigError(f"min_tokens={self.min_tokens} is not allowed; it must be >= 1")


@dataclass(frozen=True)
class SharePlannedSpec:
    """A request reads the prefix that the same step writes."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["share_planned"] = "share_planned"


SiblingsSpec = Annotated[AdmitSpec | DeferSpec | SharePlannedSpec, Field(discriminator="type")]


@dataclass(frozen=True)
class MixedSpec:
    """A step decodes everybody and computes chunks of prompts beside that."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["mixed"] = "mixed"


@dataclass(frozen=True)
class PromptsFirstSpec:
    """A step computes whole prompts while anybody's fits, or else decodes everybody.

    Attributes:
        decode_steps: steps of decoding between two looks at the queue.
        max_padding: tokens by which the prompts of a step may fall short of the longest, taken
            together, as where all are padded to it (`_schedule` in vLLM 0.2.5's scheduler.py); the
            padded ones then count against the budget. None sets no limit.
        jumps_rejoin: a sequence that jumps forward leaves what it computed to the cache, and its
            forced text is computed as a prompt when its turn comes again, as in SGLang's first
            release (`check_for_jump_forward`, `forward_decode_batch`). Without jumps it is nothing.
    """

    __pydantic_config__ = FORBID_EXTRA
    decode_steps: int = 1
    max_padding: int | None = None
    jumps_rejoin: bool = False
    type: Literal["prompts_first"] = "prompts_first"

    def __post_init__(self) -> None:
        if self.decode_steps < 1:
            raise ConfigError(f"decode_steps={self.decode_steps} is not allowed; it must be >= 1")
        refuse_negative(max_padding=self.max_padding)


CompositionSpec = Annotated[MixedSpec | PromptsFirstSpec, Field(discriminator="type")]


@dataclass(frozen=True)
class InOrderSpec:
    """Admission stops at the first request that does not fit, so nobody is overtaken for size."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["in_order"] = "in_order"


@dataclass(frozen=True)
class PassOverSpec:
    """Admission passes over who does not fit: fuller steps, but long requests wait for a gap.

    Attributes:
        matches_all: match all who wait before anybody is let in, and evict only when the prefixes
            of all who are let in are pinned, as SGLang's first release did (`get_new_fill_batch` in
            its model_rpc.py, `prepare_for_extend` in infer_batch.py). A match is a use, so what the
            queue would hit is evicted late. A look then costs O(queue).
        joins_at_end: who was held back by a hint, or was retracted, comes to the end of the queue,
            as there: its frontend sent the members of a fork when their prefix had ended (`fork` in
            its interpreter.py), and what came was appended. Otherwise it takes the place of its
            arrival.
    """

    __pydantic_config__ = FORBID_EXTRA
    matches_all: bool = False
    joins_at_end: bool = False
    type: Literal["pass_over"] = "pass_over"


@dataclass(frozen=True)
class WorkingSetSpec:
    """In order, and a share of the room is kept for those who are here already.

    What the waiting would hit counts as taken, as far as the share goes, and newcomers leave it
    free if many requests come back for what they had computed. For policies that put the longest
    prefix first, best with eviction `next_use`.

    Attributes:
        keep: the share, in [0, 1].
    """

    __pydantic_config__ = FORBID_EXTRA
    keep: float = 0.6
    type: Literal["working_set"] = "working_set"

    def __post_init__(self) -> None:
        if not 0 <= self.keep <= 1:
            raise ConfigError(f"keep={self.keep} is not allowed; a share in [0, 1] is")


AdmissionSpec = Annotated[InOrderSpec | PassOverSpec | WorkingSetSpec, Field(discriminator="type")]


@dataclass(frozen=True)
class GrowthSpec:
    """What admission expects the running to grow by: a share of their remaining `max_new_tokens`.

    Attributes:
        start: the share at first.
        floor: what it sinks to while nobody has to be retracted.
        decay_steps: steps from one to the other.
        newcomers_in_full: keep all of its `max_new_tokens` for a request in the step that admits
            it, as SGLang's first release did (with a constant share of 0.4).
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["adaptive"] = "adaptive"
    start: float = 0.7
    floor: float = 0.1
    decay_steps: int = 600
    newcomers_in_full: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= self.start <= 1 or self.decay_steps < 1:
            raise ConfigError(
                f"growth: start={self.start}, floor={self.floor}, decay_steps={self.decay_steps}; "
                "0 <= floor <= start <= 1 and at least one step are allowed"
            )


def build_growth(spec: GrowthSpec) -> AdaptiveGrowth:
    """Return the estimate an object describes."""
    return AdaptiveGrowth(
        spec.start, spec.floor, spec.decay_steps, newcomers_in_full=spec.newcomers_in_full
    )


def build_policy(spec: PolicySpec, engine_seed: int = 0) -> Policy:
    """Return the policy an object describes; one without a seed takes the engine's."""
    match spec:
        case FcfsSpec():
            return Fcfs()
        case RandomSpec(seed=seed, anew=anew):
            return RandomOrder(engine_seed if seed is None else seed, anew)
        case LpmSpec():
            return LongestPrefixMatch()
        case DfsWeightSpec():
            return DepthFirstWeighted()
        case AgedLpmSpec(max_wait_s=max_wait_s, hold_s=hold_s):
            return AgedLongestPrefixMatch(max_wait_s, hold_s)
        case KLpmSpec(k=k):
            return KLongestPrefixMatch(k)
        case HrrnSpec():
            return HighestResponseRatio()
        case VtcSpec(output_weight=output_weight):
            return VirtualTokenCounter(output_weight)
        case DlpmSpec(quantum=quantum, output_weight=output_weight):
            return DeficitLongestPrefix(quantum, output_weight)
        case PythonSpec():
            return OwnPolicy(spec)


def build_siblings(spec: SiblingsSpec) -> Siblings:
    """Return the siblings' strategy an object describes."""
    match spec:
        case AdmitSpec():
            return Admit()
        case DeferSpec(min_tokens=min_tokens):
            return Defer(min_tokens)
        case SharePlannedSpec():
            return SharePlanned()


def build_composition(spec: CompositionSpec) -> Composition:
    """Return the composition of steps an object describes."""
    match spec:
        case MixedSpec():
            return Mixed()
        case PromptsFirstSpec():
            return PromptsFirst(spec.decode_steps, spec.max_padding, spec.jumps_rejoin)


def build_look(spec: AdmissionSpec) -> Look:
    """Return the way to look at the queue that an object describes."""
    match spec:
        case InOrderSpec():
            return Look()
        case PassOverSpec(matches_all=matches_all, joins_at_end=joins_at_end):
            return Look(passes_over=True, matches_all=matches_all, joins_at_end=joins_at_end)
        case WorkingSetSpec(keep=keep):
            return Look(reserve=WorkingSet(keep))
