"""A policy of the user's own, held to what a policy promises. Imports own and its neighbours."""

from collections.abc import Iterator

from sgjax.errors import ConfigError
from sgjax.own import PythonSpec, make_a
from sgjax.schedule.policies import Policy
from sgjax.schedule.sequence import Sequence
from sgjax.schedule.waiting import WaitingQueue


class OwnPolicy(Policy):
    """Ask a user's policy, and refuse an order that is no permutation of the queue.

    Nobody would ever admit whom it leaves out, and the engine would wait for ever.

    Args:
        spec: what gives the policy.

    Raises:
        ConfigError: what it gives is no policy.
    """

    def __init__(self, spec: PythonSpec) -> None:
        self._policy: Policy = make_a(Policy, spec)
        self._called = f"{spec.function} of {spec.file}"
        self.tracks_prefix = self._policy.tracks_prefix

    def key(self, seq: Sequence) -> tuple[float, ...]:
        """Return the user's key."""
        return self._policy.key(seq)

    def order(self, queue: WaitingQueue, now_s: float) -> Iterator[Sequence]:
        """Yield in the user's order.

        Raises:
            ConfigError: it holds a sequence twice, or has ended and left one out.
        """
        seen, num_waiting = set(), len(queue)
        for seq in self._policy.order(queue, now_s):
            if seq.request.id in seen:
                raise ConfigError(f"{self._called}: order yielded request {seq.request.id!r} twice")
            seen.add(seq.request.id)
            yield seq
        if len(seen) != num_waiting:
            raise ConfigError(
                f"{self._called}: order yielded {len(seen)} of {num_waiting} waiting requests; it "
                "must yield all of them, in any order"
            )

    def admitted(self, seq: Sequence) -> None:
        """Tell the user's policy."""
        self._policy.admitted(seq)

    def ended(self, seq: Sequence) -> None:
        """Tell the user's policy."""
        self._policy.ended(seq)
