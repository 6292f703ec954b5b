"""Admission: the requests that are not running, wherever they wait, and who of them is let in.

Imports errors, the queue, hints, siblings, strategies, pages, composition and its neighbours.
The ways of a request::

    come --> [held by its hint] --> [entrance] --> queue --admit--> running
                                                   ^   |
                          [deferred to a sibling] -+<--+
"""

from collections.abc import Callable

from sgjax.errors import ConfigError
from sgjax.schedule.checks import Limits
from sgjax.schedule.composition import Draft
from sgjax.schedule.hints import Hints
from sgjax.schedule.pages import PageKeeper
from sgjax.schedule.reserve import Candidate
from sgjax.schedule.sequence import Sequence
from sgjax.schedule.siblings import Deferred
from sgjax.schedule.stats import SchedulerStats
from sgjax.schedule.strategies import Strategies
from sgjax.schedule.waiting import WaitingQueue


class Admission:
    """Own all who wait; let them in where they fit.

    Args:
        pages: pool and prefix cache.
        strategies: of the scheduler.
        limits: sizes of a step.
        stats: counters.
        now: clock in seconds.

    Attributes:
        hints: the live hints.

    Raises:
        ConfigError: the look and the siblings' strategy exclude each other.
    """

    def __init__(
        self,
        pages: PageKeeper,
        strategies: Strategies,
        limits: Limits,
        stats: SchedulerStats,
        now: Callable[[], float],
    ) -> None:
        policy, look = strategies.policy, strategies.look
        if look.matches_all and strategies.siblings.shares_planned:
            raise ConfigError(
                "admission: with matches_all=true nobody has new pages before all newcomers are "
                "chosen, but siblings 'share_planned' shares them; use siblings 'admit' or 'defer'"
            )
        self._pages = pages
        self._policy = policy
        self._siblings = strategies.siblings
        self._growth = strategies.growth
        self._look = look
        self._entrance = strategies.entrance
        self._limits = limits
        self._stats = stats
        self._now = now
        asked = pages.cache.foresee(lambda node: self._queue.next_use(node))
        tracks = policy.tracks_prefix or asked or look.reserve.foresees
        self._queue = WaitingQueue(pages.cache, policy.key, tracks)
        self._deferred = Deferred()
        self._joined = 0
        self.hints = Hints(pages.cache)

    # ---------------------------------------------------------------- who waits

    def come(self, seq: Sequence) -> None:
        """Take in a new request.

        Raises:
            ConfigError: its hint is unknown.
        """
        if seq.request.after is None or not self.hints.hold(seq):
            self._enter(seq)

    def come_back(self, seq: Sequence) -> None:
        """Take in a request that ran and was retracted."""
        self._join(seq)

    def withdraw(self, seq: Sequence) -> None:
        """Forget a request that will not run, wherever it waits."""
        if seq in self._queue:
            self._queue.remove(seq)
        self._deferred.remove(seq)
        self._entrance.remove(seq)
        if seq.cached_tokens < 0:
            self.hints.follower_gone(seq)

    def wake(self, writer: Sequence) -> None:
        """Requeue those whose awaited prefix is computed, or will not be."""
        for seq in self._deferred.wake(writer):
            self._join(seq)

    def release_followers(self, seq: Sequence) -> None:
        """Let the followers of a hint come: it is computed, or it died."""
        for follower in self.hints.finished(seq.request.id, seq.node):
            self._enter(follower)

    def ended(self) -> None:
        """Hear that a request ended."""
        self._entrance.ended()

    def head(self) -> Sequence | None:
        """Return whom the policy would admit first; None where nobody is in the queue."""
        return next(self._policy.order(self._queue, self._now()), None)

    def wait(self) -> bool:
        """Let time pass until somebody comes to the queue; return False where nobody will."""
        return self._entrance.wait()

    def is_idle(self, num_running: int) -> bool:
        """Return whether looking at the queue would change nothing while nobody comes or ends."""
        full = num_running >= self._limits.max_running
        return self._entrance.is_idle and (full or not len(self._queue))

    def _enter(self, seq: Sequence) -> None:
        if not self._entrance.keeps(seq):
            self._join(seq)

    def _join(self, seq: Sequence) -> None:
        if self._look.joins_at_end:
            seq.place = self._joined
            self._joined += 1
        self._queue.add(seq)

    # ---------------------------------------------------------------- who is let in

    def admit(self, draft: Draft, running: dict[str, Sequence], closed: bool) -> bool:
        """Look at the queue, and let in who fits, in the policy's order.

        Args:
            draft: the step that newcomers are added to.
            running: the admitted, by id; newcomers are added.
            closed: whether nobody is let in this time.

        Returns:
            Whether any request changed its place.
        """
        for seq in self._entrance.look():
            self._join(seq)
        if closed or not len(self._queue) or len(running) >= self._limits.max_running:
            return False
        if self._look.matches_all:
            for seq in self._queue.in_order():
                self._pages.cache.match(seq.tokens.view(0, seq.match_limit))
        self._queue.refresh()
        reserved = self._growth.tokens(running.values())
        computing = [s for s in running.values() if s.num_computed < s.num_prompt]
        left: list[Sequence] = []
        num_begun = len(computing)
        for seq in self._policy.order(self._queue, self._now()):
            if draft.budget <= 0 or len(running) >= self._limits.max_running:
                break
            if not self._defer(seq, computing):
                own_growth = self._growth.newcomer_tokens(seq)
                if not self._take_in(seq, reserved + own_growth, draft, running):
                    if self._look.passes_over:
                        continue
                    break
                reserved += own_growth
                if self._look.matches_all:
                    reserved += self._pages.missing_tokens(seq)
                else:
                    self._pages.fill([seq])
                computing.append(seq)
                draft.extend(seq)
            left.append(seq)
        self._pages.fill(computing[num_begun:])
        for seq in left:
            self._queue.remove(seq)
        return bool(left)

    def _defer(self, seq: Sequence, computing: list[Sequence]) -> bool:
        """Let `seq` wait for a prefix that is being computed, if the siblings' strategy says so."""
        if not computing:
            return False
        found = self._siblings.wait_for(seq, self._queue.cached(seq), computing)
        if found is not None:
            self._deferred.add(seq, *found)
        return found is not None

    def _take_in(
        self, seq: Sequence, growth_tokens: float, draft: Draft, running: dict[str, Sequence]
    ) -> bool:
        """Admit one request if it fits beside the expected growth of all; return whether it did."""
        cache = self._pages.cache
        match = cache.match(seq.tokens.view(0, seq.match_limit))
        if not draft.takes(match.num_tokens, seq.num_tokens):
            return False
        evictable = cache.num_evictable
        cache.pin(match.node)  # before looking at what is evictable: the match no longer is
        own = (evictable - cache.num_evictable) * cache.page_size
        # Alone, a request may take all there is: what it cannot grow into fails only then.
        expected = growth_tokens if running else 0
        missing = self._pages.missing_tokens(seq, match)
        spare = self._pages.room_tokens - missing - expected
        candidate = Candidate(match.num_tokens, own, missing, spare, self._pages.capacity_tokens)
        reserve = self._look.reserve
        if spare < 0 or (running and not reserve.allows(candidate, self._queue.held)):
            cache.unpin(match.node)
            return False
        self._pages.acquire(seq, match)
        running[seq.request.id] = seq
        if seq.cached_tokens < 0:
            self.hints.follower_gone(seq)
            seq.cached_tokens = min(match.num_tokens, seq.num_prompt)
            self._stats.cached_tokens += seq.cached_tokens
            reserve.admitted(candidate)
            seq.admitted_s = self._now()
            self._policy.admitted(seq)
        return True
