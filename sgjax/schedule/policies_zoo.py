"""Policies from the literature after the paper: k-LPM, VTC, DLPM, highest response ratio next.

Imports policies, the waiting queue and sequence. They look at the clock, at clients or at their own
earlier choices, so `order` walks the waiting; each is small enough to be read beside its source.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

from sgjax.schedule.policies import LongestPrefixMatch, Policy
from sgjax.schedule.sequence import Sequence
from sgjax.schedule.waiting import WaitingQueue


class KLongestPrefixMatch(LongestPrefixMatch):
    """After k picks by longest cached prefix, one by arrival; and so on.

    k = 0 is first come, first served, and no limit is the paper's policy. Whoever waits longest
    waits for at most k picks, whatever the others share.

    Args:
        k: picks by prefix for each one by arrival.

    Source:
        Dexter et al., LLM query scheduling with prefix reuse and latency constraints (2025).
    """

    def __init__(self, k: int) -> None:
        self._k = k
        self._picks = 0

    def admitted(self, seq: Sequence) -> None:
        """Count the pick."""
        self._picks += 1

    def order(self, queue: WaitingQueue, now_s: float) -> Iterator[Sequence]:
        """Yield k by matched prefix, one by arrival, going on where the last admission was."""
        del now_s
        taken: set[int] = set()
        by_prefix, by_arrival = queue.in_order(), queue.by_arrival()
        for pick in range(self._picks, self._picks + len(queue)):
            oldest_is_due = pick % (self._k + 1) == self._k
            source = by_arrival if oldest_is_due else by_prefix
            seq = next(seq for seq in source if seq.arrival not in taken)
            taken.add(seq.arrival)
            yield seq


class HighestResponseRatio(LongestPrefixMatch):
    """Most waiting per token of work first, so that everybody's ratio grows until it is served.

    The response ratio is 1 + wait / service time; service is taken as proportional to the prompt
    tokens that are not cached. A hit makes a request short, a wait makes any request urgent.

    Source:
        Brinch Hansen (1971); `hrrn` of SGLang 0.5.
    """

    def order(self, queue: WaitingQueue, now_s: float) -> Iterator[Sequence]:
        """Yield by (seconds waited) / (tokens to compute), highest first."""

        def ratio(seq: Sequence) -> float:
            return (now_s - seq.arrived_s) / (seq.num_tokens - seq.matched)

        return iter(sorted(queue.in_order(), key=lambda seq: (-ratio(seq), seq.arrival)))


class Accounts:
    """How many tokens each client was served, outputs in progress included.

    A client that comes (back) starts level with the least served of those who wait, so that nobody
    saves up service by staying away.

    Args:
        output_weight: tokens of prompt that one token of output counts for.
    """

    def __init__(self, output_weight: float) -> None:
        self._weight = output_weight
        self._charged: dict[str, float] = defaultdict(float)
        self._running: dict[int, Sequence] = {}
        self._waiting: set[str] = set()

    def admitted(self, seq: Sequence, tokens: int) -> None:
        """Charge a client for a prompt; its output counts as it grows."""
        self._charged[seq.request.client] += tokens
        self._running[seq.arrival] = seq

    def ended(self, seq: Sequence) -> None:
        """Charge the output for good."""
        if self._running.pop(seq.arrival, None) is not None:
            self._charged[seq.request.client] += self._weight * seq.num_output

    def served(self, clients: Iterable[str]) -> dict[str, float]:
        """Return the tokens of each client that waits now."""
        now = set(clients)
        level = min((self._charged[c] for c in now & self._waiting), default=None)
        for client in now - self._waiting:
            if level is not None:
                self._charged[client] = max(self._charged[client], level)
        self._waiting = now
        served = {client: self._charged[client] for client in now}
        for seq in self._running.values():
            if seq.request.client in served:
                served[seq.request.client] += self._weight * seq.num_output
        return served


class VirtualTokenCounter(Policy):
    """The client that was served least goes first; within a client, first come, first served.

    Args:
        output_weight: tokens of prompt that one token of output counts for.

    Source:
        Sheng et al., Fairness in serving large language models (2023), Algorithm 2.
    """

    tracks_prefix = False

    def __init__(self, output_weight: float) -> None:
        self._accounts = Accounts(output_weight)

    def admitted(self, seq: Sequence) -> None:
        """Charge the whole prompt: VTC knows of no cache."""
        self._accounts.admitted(seq, seq.num_prompt)

    def ended(self, seq: Sequence) -> None:
        """Charge the output."""
        self._accounts.ended(seq)

    def order(self, queue: WaitingQueue, now_s: float) -> Iterator[Sequence]:
        """Yield the oldest request of the least served client, as if each were admitted."""
        del now_s
        lines: dict[str, deque[Sequence]] = defaultdict(deque)
        for seq in queue.by_arrival():
            lines[seq.request.client].append(seq)
        heap = [(tokens, client) for client, tokens in self._accounts.served(lines).items()]
        heapq.heapify(heap)
        while heap:
            tokens, client = heapq.heappop(heap)
            seq = lines[client].popleft()
            if lines[client]:
                heapq.heappush(heap, (tokens + seq.num_prompt, client))
            yield seq


class DeficitLongestPrefix(LongestPrefixMatch):
    """Longest cached prefix first among the clients that have not used up their round's quantum.

    A round ends when all who wait have used theirs; so clients differ by about a quantum at most,
    and within it locality decides. Only what is computed is charged.

    Args:
        quantum: tokens a client may use a round.
        output_weight: tokens of prompt that one token of output counts for.

    Source:
        Cao et al., Locality-aware fair scheduling in LLM serving (2025), DLPM.
    """

    def __init__(self, quantum: int, output_weight: float) -> None:
        self._quantum = quantum
        self._accounts = Accounts(output_weight)

    def admitted(self, seq: Sequence) -> None:
        """Charge the prompt tokens that were not cached."""
        self._accounts.admitted(seq, seq.num_prompt - max(seq.cached_tokens, 0))

    def ended(self, seq: Sequence) -> None:
        """Charge the output."""
        self._accounts.ended(seq)

    def order(self, queue: WaitingQueue, now_s: float) -> Iterator[Sequence]:
        """Yield round by round, by matched prefix within a round, as if each were admitted."""
        del now_s
        left = list(queue.in_order())
        served = self._accounts.served({seq.request.client for seq in left})
        while left:
            least = min(served[seq.request.client] for seq in left)
            end_of_round = (least // self._quantum + 1) * self._quantum
            later: list[Sequence] = []
            for seq in left:
                if served[seq.request.client] < end_of_round:
                    served[seq.request.client] += seq.num_tokens - seq.matched
                    yield seq
                else:
                    later.append(seq)
            left = later
