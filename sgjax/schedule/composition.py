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
        whole_prompts: whether a newcomer is computed in one step, or in steps of its own.
        max_padding: tokens by which whole prompts of a step may fall short of the longest, taken
            together; None sets no limit.

    Attributes:
        budget: tokens that may still be added, in whole blocks for extends.
    """

    def __init__(
        self,
        limits: Limits,
        pages: PageKeeper,
        shares_planned: bool,
        whole_prompts: bool,
        max_padding: int | None = None,
    ) -> None:
        self._limits = limits
        self._pages = pages
        self._shares_planned = shares_planned
        self._whole_prompts = whole_prompts
        self._max_padding = max_padding
        self._singles: list[PlanRow] = []
        self._extends: list[PlanRow] = []
        self.budget = limits.token_budget

    @property
    def rows(self) -> list[PlanRow]:
        """Return the rows so far, single tokens first."""
        return self._singles + self._extends

    @property
    def is_empty(self) -> bool:
        """Return whether there is no row yet."""
        return not self._singles and not self._extends

    def takes(self, start: int, end: int) -> bool:
        """Return whether a newcomer that lacks these tokens may be begun in this step."""
        # Who has the step for itself needs no more: otherwise the longest would never run.
        if not self._whole_prompts or self.is_empty or end - start == 1:
            return True
        if self._max_padding is not None and start == 0:
            lengths = [*(row.end for row in self.rows if row.start == 0), end]
            padded = len(lengths) * max(lengths)
            most = min(self._limits.token_budget, sum(lengths) + self._max_padding)
            return padded <= most
        return self._limits.charge(end - start) <= self.budget

    def decode(self, seq: Sequence) -> None:
        """Add a sequence that lacks one token, whatever is left of the budget."""
        self._add(seq, 1)

    def extend(self, seq: Sequence) -> None:
        """Add as many of a sequence's missing tokens as the budget allows, maybe none."""
        todo, block = seq.todo, self._limits.block_tokens
        if todo == 1 and self.budget > 0:
            count = 1
        else:
            count = min(todo, max(self.budget, 0) // block * block)
        if count == 0:
            return
        self._add(seq, count)
        if self._shares_planned:
            self._pages.offer(seq, seq.num_computed + count)

    def _add(self, seq: Sequence, count: int) -> None:
        start, end = seq.num_computed, seq.num_computed + count
        sample = end == seq.num_tokens and seq.output is not None
        row = PlanRow(seq, start, end, sample, seq.logprob_from)
        (self._singles if count == 1 else self._extends).append(row)
        self.budget -= self._limits.charge(count)


Admit = Callable[[Draft], bool]
"""Add newcomers to a draft; return whether any request changed its place."""


class Composition(abc.ABC):
    """Decide what a step is made of."""

    whole_prompts: bool = False
    """Whether a newcomer joins a step only if all its missing tokens do, or if it is alone."""

    max_padding: int | None = None
    """Tokens that are at most computed for nothing where a step's prompts differ in length."""

    jumps_rejoin: bool = False
    """Whether a sequence with forced text to compute gives up its place and waits."""

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
    def repeatable(self, num_rows: int, looked_for: bool, limits: Limits) -> int | None:
        """Return how many steps pass, this one included, before a look that may change anything.

        Args:
            num_rows: decodes of the step just composed, which are all there is to run.
            looked_for: whether a look would change anything, if it came to it.
            limits: of a step.

        Returns:
            At least 1; None where there is no such look while everybody goes on decoding.
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

    def repeatable(self, num_rows: int, looked_for: bool, limits: Limits) -> int | None:
        """Return 1 where decodes leave tokens for others: each step looks then."""
        return 1 if looked_for and num_rows < limits.token_budget else None

    def repeated(self, steps: int) -> None:
        """Do nothing: every step is like the first."""


class PromptsFirst(Composition):
    """Make a step all prompts or all decodes, prompts first.

    SGLang's first release (`forward_step` in its model_rpc.py) and vLLM until it had chunked
    prefill (`_schedule` in 0.2.5's scheduler.py) do so: whenever somebody fits, whole prompts are
    computed and everybody else's decoding stalls; otherwise all decode.

    Args:
        decode_steps: steps of decoding between two looks at the queue; SGLang took 10, vLLM 1.
        max_padding: as of `Draft`.
        jumps_rejoin: whether who jumps forward joins the queue.
    """

    whole_prompts = True

    def __init__(
        self, decode_steps: int, max_padding: int | None = None, jumps_rejoin: bool = False
    ) -> None:
        self._decode_steps = decode_steps
        self.max_padding = max_padding
        self.jumps_rejoin = jumps_rejoin
        self._left = 0
        """Steps of decoding before the next look."""

    def compose(self, draft: Draft, running: Collection[Sequence], admit: Admit) -> bool:
        """Go on decoding; or compute prompts, of the running and of newcomers; or else decode."""
        if self._left:
            self._decode(draft, running)
            self._left = 0 if draft.is_empty else self._left - 1
        if not draft.is_empty:
            return False
        for seq in running:
            if seq.todo > 1:
                draft.extend(seq)
        admitted = draft.budget > 0 and admit(draft)
        if draft.is_empty:
            self._decode(draft, running)
            self._left = 0 if draft.is_empty else self._decode_steps - 1
        return admitted

    def repeatable(self, num_rows: int, looked_for: bool, limits: Limits) -> int | None:
        """Return the steps up to the end of this round of decoding."""
        return self._left + 1 if looked_for else None

    def repeated(self, steps: int) -> None:
        """Count the steps of decoding that passed, rounds of them between looks in vain."""
        self._left = (self._left - steps) % self._decode_steps

    def _decode(self, draft: Draft, running: Collection[Sequence]) -> None:
        for seq in running:
            if seq.todo == 1:
                draft.decode(seq)
