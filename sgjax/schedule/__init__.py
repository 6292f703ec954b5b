"""HOST. Policies (order), admission (fit), the Scheduler (plan, commit, retract); no jax."""

from sgjax.schedule.checks import Limits
from sgjax.schedule.composition import Composition, Mixed, PromptsFirst
from sgjax.schedule.entrance import Entrance
from sgjax.schedule.growth import AdaptiveGrowth
from sgjax.schedule.pages import PageKeeper
from sgjax.schedule.plan import Executor, Plan, PlanRow, StepOutput
from sgjax.schedule.policies import Policy
from sgjax.schedule.retract import LeastProgress, RetractRule
from sgjax.schedule.scheduler import Scheduler
from sgjax.schedule.sequence import Sequence
from sgjax.schedule.siblings import Siblings
from sgjax.schedule.spec import (
    AdmissionSpec,
    CompositionSpec,
    GrowthSpec,
    PolicySpec,
    SiblingsSpec,
    build_composition,
    build_growth,
    build_look,
    build_policy,
    build_siblings,
)
from sgjax.schedule.stats import SchedulerStats
from sgjax.schedule.strategies import Strategies
from sgjax.schedule.waiting import WaitingQueue
from sgjax.schedule.watch import Watcher

__all__ = [
    "AdaptiveGrowth",
    "AdmissionSpec",
    "Composition",
    "CompositionSpec",
    "Entrance",
    "Executor",
    "GrowthSpec",
    "LeastProgress",
    "Limits",
    "Mixed",
    "PageKeeper",
    "Plan",
    "PlanRow",
    "Policy",
    "PolicySpec",
    "PromptsFirst",
    "RetractRule",
    "Scheduler",
    "SchedulerStats",
    "Sequence",
    "Siblings",
    "SiblingsSpec",
    "StepOutput",
    "Strategies",
    "WaitingQueue",
    "Watcher",
    "build_composition",
    "build_growth",
    "build_look",
    "build_policy",
    "build_siblings",
]
