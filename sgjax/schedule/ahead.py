"""Running ahead: many identical decode steps at once, where the scheduler has nothing to decide.

Imports checks, composition, growth, pages, plan, stats and numpy. For simulations only: an executor
that knows its tokens beforehand can repeat a plan until somebody ends, a page must be evicted or a
request comes.
"""

import numpy as np

from sgjax.schedule.checks import Limits
from sgjax.schedule.composition import Composition
from sgjax.schedule.growth import AdaptiveGrowth
from sgjax.schedule.pages import PageKeeper
from sgjax.schedule.plan import Plan
from sgjax.schedule.stats import SchedulerStats


class Ahead:
    """Repeat a plan that was just made.

    Args:
        pages: what the rows grow into.
        composition: hears of steps that were skipped.
        growth: likewise.
        limits: sizes of a step and of a sequence.
        stats: counters.
    """

    def __init__(
        self,
        pages: PageKeeper,
        composition: Composition,
        growth: AdaptiveGrowth,
        limits: Limits,
        stats: SchedulerStats,
    ) -> None:
        self._pages = pages
        self._composition = composition
        self._growth = growth
        self._limits = limits
        self._stats = stats

    def repeats(self, plan: Plan, looked_for: bool) -> int:
        """Return how often a plan can run in a row before there is anything to decide.

        Args:
            plan: as it was made; its rows are all the running sequences.
            looked_for: whether a look at the queue would change anything.

        Returns:
            At least 1; 1 also where a row is anything but a decode in the middle of an output that
            only its length can end.
        """
        most = self._composition.repeatable(len(plan.rows), looked_for, self._limits)
        if most == 1:
            return 1
        steps = self._until_an_end(plan)
        return self._until_full(plan, steps if most is None else min(steps, most))

    def commit(self, plan: Plan, token: int, times: int) -> None:
        """Append `token` to every row as often as the plan was run, as `repeats` allows."""
        for row in plan.rows:
            seq = row.seq
            seq.num_computed = row.end + times - 1
            seq.tokens.append_many(token, times - 1)
        needy, missing = self._pages.lacking(row.seq for row in plan.rows)
        self._pages.grow(needy, missing)
        for row in plan.rows:
            row.seq.tokens.append_many(token, 1)
            assert row.seq.output is not None
            row.seq.output.append_many(token, times)
        self._composition.repeated(times - 1)
        for _ in range(times - 1):
            self._growth.step()
        self._stats.planned(len(plan.rows), plan.num_tokens, self._pages.num_used, times - 1)

    def _until_an_end(self, plan: Plan) -> int:
        """Return the steps before one in which a sequence ends; 1 if one may end any time."""
        context = self._limits.max_context_len
        most = context
        for seq, start, end, sample, logprob_from, _ in plan.rows:
            request = seq.request
            if not (end - start == 1 and sample and logprob_from < 0 and seq.is_decoding):
                return 1
            if seq.end_ids or request.params.stop or request.constraint is not None:
                return 1
            if request.stream or request.return_logprob:
                return 1
            # The step that ends a sequence is an ordinary one.
            most = min(most, seq.max_growth - 1, context - 1 - seq.num_tokens)
        return most

    def _until_full(self, plan: Plan, most: int) -> int:
        """Return how many of `most` steps find room in free pages."""
        if most <= 1:
            return 1
        size, free = self._pages.pool.page_size, self._pages.pool.num_free
        lengths = np.array([row.seq.num_tokens for row in plan.rows])
        held = np.array([row.seq.pages.length for row in plan.rows])

        def fits(times: int) -> bool:
            return int((-(-(lengths + times - 1) // size) - held).sum()) <= free

        low, high = 1, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(middle) else (low, middle - 1)
        return low
