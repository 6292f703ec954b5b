"""Admission's estimate of how much the running sequences will still grow.

Imports nothing of sgjax but sequence. Reserving every request's full `max_new_tokens` would leave
most of the pool idle; reserving nothing would retract all the time.
"""

from collections.abc import Iterable

from sgjax.schedule.sequence import Sequence


class AdaptiveGrowth:
    """Expect a share of the remaining `max_new_tokens`; the share adapts to retractions.

    The share starts high, sinks linearly while no sequence has to be retracted, and rises to what
    has really been seen when one is.

    Args:
        start: first share, in [0, 1].
        floor: lowest share.
        decay_steps: steps without a retraction from `start` down to `floor`.
        lookahead: tokens a sequence is granted beyond what it has shown, after a retraction.
        newcomers_in_full: expect all of the `max_new_tokens` of those who are admitted in a step,
            until the next one.
    """

    def __init__(
        self,
        start: float,
        floor: float,
        decay_steps: int,
        lookahead: int = 20,
        newcomers_in_full: bool = False,
    ) -> None:
        self._floor = floor
        self._decay = (start - floor) / decay_steps
        self._lookahead = lookahead
        self._newcomers_in_full = newcomers_in_full
        self.share = start

    def step(self) -> None:
        """Note a step without a retraction."""
        self.share = max(self._floor, self.share - self._decay)

    def retracted(self, running: Iterable[Sequence]) -> None:
        """Note a retraction; `running` are the sequences left."""
        shown, allowed = 0, 1
        for seq in running:
            shown += seq.num_output + self._lookahead
            allowed += seq.num_output + seq.max_growth
        self.share = min(1.0, max(self.share, shown / allowed))

    def tokens(self, running: Iterable[Sequence]) -> float:
        """Return the tokens by which `running` are expected to grow altogether."""
        return self.share * sum(seq.max_growth for seq in running)

    def newcomer_tokens(self, seq: Sequence) -> float:
        """Return the tokens that admission keeps for a newcomer beside its prompt."""
        return seq.max_growth if self._newcomers_in_full else self.tokens([seq])
