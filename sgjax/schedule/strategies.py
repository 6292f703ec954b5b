"""Strategies: what may differ between two schedulers, in one record.

Imports its neighbours and fsm's jump modes. `spec` builds each of them from a configuration.
"""

from dataclasses import dataclass, field

from sgjax.fsm.jump import JumpMode, NoJump
from sgjax.schedule.composition import Composition
from sgjax.schedule.entrance import Entrance, Open
from sgjax.schedule.growth import AdaptiveGrowth
from sgjax.schedule.policies import Policy
from sgjax.schedule.reserve import NoReserve, Reserve
from sgjax.schedule.retract import RetractRule
from sgjax.schedule.siblings import Siblings


@dataclass(frozen=True)
class Look:
    """How the queue is looked at.

    Attributes:
        passes_over: whether who comes after a request that does not fit may go first.
        matches_all: whether all who wait are matched, and so touched, before anybody is let in, and
            nothing is evicted before the prefixes of all who are let in are pinned.
        joins_at_end: whether whoever comes to the queue takes its end, and not the place of its
            arrival, although it was held back, or ran before.
        reserve: what newcomers leave to others.
    """

    passes_over: bool = False
    matches_all: bool = False
    joins_at_end: bool = False
    reserve: Reserve = field(default_factory=NoReserve)


@dataclass(frozen=True)
class Strategies:
    """The decisions of one scheduler; some remember what they saw, so no two may share them.

    Attributes:
        policy: orders the waiting.
        siblings: what to do about prefixes that are being computed.
        composition: what a step is made of.
        growth: estimate of what the running will still need.
        retract: picks whom to send back when pages run out.
        jump: what happens where a constraint forces text.
        look: how admission looks at the queue.
        entrance: what requests pass before they wait.
    """

    policy: Policy
    siblings: Siblings
    composition: Composition
    growth: AdaptiveGrowth
    retract: RetractRule
    jump: JumpMode = field(default_factory=NoJump)
    look: Look = field(default_factory=Look)
    entrance: Entrance = field(default_factory=Open)
