"""The composition of a step: which of the running it extends, and whether it lets newcomers in.

Imports plan, sequence, checks and pages. A `Composition` fills a `Draft`, which owns the rows and
the token budget of one step.
"""

import abc
from collections.abc import Callable, Collection

from sgjax.schedule.checks import Limits
from sgjax.schedule.pages import PageKeeper
from sgjax.schedule.plan import PlanRow
from sgjax.schedule.sequence import Sequence


class Draft:
    """A step in the making.

    Args:
        limits: sizes of a step.
        pages: whose cache is offered what the step writes, if `shares_planned`.
        shares_planned: whether pages enter the cache when they are planned.

    Attributes:
        budget: tokens that may still be added, in whole blocks for extends.
    """

    def __init__(self, limits: Limits, pages: PageKeeper, shares_planned: bool) -> None:
        self._block = limits.block_tokens
        self._pages = pages
        self._shares_planned = shares_planned
        self._singles: list[PlanRow] = []
        self._extends: list[PlanRow] = []
        self.budget = limits.token_budget

    @property
    def rows(self) -> list[PlanRow]:
        """Return the rows so far, single tokens first."""
        return self._singles + self._extends

    def decode(self, seq: Sequence) -> None:
        """Add a sequence that lacks one token, whatever is left of the budget."""
        start = seq.num_computed
        sample = seq.output is not None
        self._singles.append(PlanRow(seq, start, start + 1, sample, seq.logprob_from))
        self.budget -= 1

    def extend(self, seq: Sequence) -> None:
        """Add as many of a sequence's missing tokens as the budget allows, maybe none."""
        start, todo, block = seq.num_computed, seq.todo, self._block
        if todo == 1 and self.budget > 0:
            count, charge = 1, 1
        else:
            count = min(todo, max(self.budget, 0) // block * block)
            charge = -(-count // block) * block
        if count == 0:
            return
        end = start + count
        sample = end == seq.num_tokens and seq.output is not None
        row = PlanRow(seq, start, end, sample, seq.logprob_from)
        (self._singles if count == 1 else self._extends).append(row)
        self.budget -= charge
        if self._shares_planned:
            self._pages.offer(seq, end)


Admit = Callable[[Draft], bool]
"""Add newcomers to a draft; return whether any request changed its place."""


class Composition(abc.ABC):
    """Decide what a step is made of."""

    @abc.abstractmethod
    def compose(self, draft: Draft, running: Collection[Sequence], admit: Admit) -> bool:
        """Fill a step.

        Args:
            draft: to be filled; it stays empty where nobody can run.
            running: the admitted sequences, all with pages for their tokens; `admit` adds to them.
            admit: lets newcomers in.

        Returns:
            What `admit` returned; False where it was not asked.
        """

    @abc.abstractmethod
    def repeatable(self, num_running: int, waiting: bool, limits: Limits) -> int | None:
        """Return how many steps in a row, this one included, nobody is let in.

        Args:
            num_running: sequences, all of which decode.
            waiting: whether anybody waits; nobody comes meanwhile.
            limits: of a step.

        Returns:
            Steps, at least 1, if everybody goes on decoding; None where nothing limits them.
        """

    @abc.abstractmethod
    def repeated(self, steps: int) -> None:
        """Hear that the step just composed was run so many times more."""


class Mixed(Composition):
    """Decode everybody, and spend what is left of the budget on prompts, in chunks."""

    def compose(self, draft: Draft, running: Collection[Sequence], admit: Admit) -> bool:
        """Add decodes, then chunks of the running, then newcomers."""
        later: list[Sequence] = []
        for seq in running:
            if seq.todo == 1:
                draft.decode(seq)
            else:
                later.append(seq)
        for seq in later:
            draft.extend(seq)
        return draft.budget > 0 and admit(draft)

    def repeatable(self, num_running: int, waiting: bool, limits: Limits) -> int | None:
        """Return 1 where anybody might be let in beside the decodes."""
        room = num_running < limits.max_running and num_running < limits.token_budget
        return 1 if room and waiting else None

    def repeated(self, steps: int) -> None:
        """Do nothing: every step is like the first."""
