"""Sequence: the one mutable per-request object, owned by the Scheduler.

Imports types, tokens, fsm, cache and growing. Executors read it while they pack a plan; nobody but
the scheduler writes it.
"""

import copy

import numpy as np

from sgjax.cache.base import CacheNode, Keys
from sgjax.fsm.grammar import Grammar
from sgjax.schedule.growing import GrowingArray
from sgjax.tokens.detokenize import OutputText
from sgjax.types import Request, TokenLogprob

_NO_PAGES = np.empty(0, np.int32)


class Sequence:
    """One request in flight.

    Attributes:
        request: what was asked.
        tokens: prompt and output so far.
        num_prompt: prompt length in tokens.
        max_tokens: most tokens it may have, prompt and output: the context.
        num_computed: tokens whose K/V is in `pages`.
        pages: page table; the first `shared / S` belong to the cache, the rest to the sequence.
        shared: tokens at the front whose pages belong to the cache.
        node: the pinned cache node that ends at `shared`; None while not admitted.
        output: the output's text and stop test; None where no tokens are wanted.
        cached_tokens: prompt tokens found in the cache at first admission; -1 before it.
        matched: prompt tokens in the cache as the waiting queue last saw it.
        is_decoding: a token was sampled since it was admitted, so its prompt is computed.
        delivered: output tokens handed out in deltas.
        end_ids: ids that end this output.
        ended: finished, failed or aborted; a step in flight may still hold a row of it.
        forced: output tokens appended by jump-forward.
        jump_ends: where jumps ended, in bytes of the output.
        grammar: the compiled constraint, or None.
        grammar_state: its state after the output so far.
        held: tokens that likely follow: forced text that the last jump held back.
        seed: the sample's seed.
        arrival: the scheduler's arrival number.
        place: its place in line, which defines fcfs order: its arrival, unless admission lets it
            join at the end.
        arrived_s, admitted_s, first_token_s: on the scheduler's clock; -1 before it happened.
        input_logprobs, output_logprobs: log-probabilities so far.
    """

    __slots__ = (
        "admitted_s",
        "arrival",
        "arrived_s",
        "cached_tokens",
        "delivered",
        "end_ids",
        "ended",
        "first_token_s",
        "forced",
        "grammar",
        "grammar_state",
        "held",
        "input_logprobs",
        "is_decoding",
        "jump_ends",
        "matched",
        "max_tokens",
        "node",
        "num_computed",
        "num_prompt",
        "output",
        "output_logprobs",
        "pages",
        "place",
        "request",
        "seed",
        "shared",
        "tokens",
    )

    def __init__(
        self,
        request: Request,
        keys: Keys,
        output: OutputText | None,
        end_ids: frozenset[int],
        seed: int,
        arrival: int,
        arrived_s: float,
        max_tokens: int,
    ) -> None:
        self.request = request
        self.tokens = GrowingArray(keys)
        self.num_prompt = len(keys)
        self.max_tokens = max_tokens
        self.num_computed = 0
        self.pages = GrowingArray(_NO_PAGES)
        self.shared = 0
        self.node: CacheNode | None = None
        self.output = output
        self.cached_tokens = -1
        self.matched = 0
        self.is_decoding = False
        self.delivered = 0
        self.end_ids = end_ids
        self.ended = False
        self.forced = 0
        self.jump_ends: list[int] = []
        self.grammar: Grammar | None = None
        self.grammar_state = 0
        self.held: tuple[int, ...] = ()
        self.seed = seed
        self.arrival = self.place = arrival
        self.arrived_s = arrived_s
        self.admitted_s = -1.0
        self.first_token_s = -1.0
        self.input_logprobs: list[TokenLogprob] = []
        if request.logprob_start is not None:
            first = request.tokens[request.logprob_start]
            self.input_logprobs.append(TokenLogprob(None, first))
        self.output_logprobs: list[TokenLogprob] = []

    def supposing(self, token: int, grammar_state: int) -> "Sequence":
        """Return a copy with one token more, to be read only; it shares all but the tokens."""
        other = copy.copy(self)
        other.tokens = GrowingArray(self.tokens.view())
        other.tokens.append(token)
        other.grammar_state = grammar_state
        return other

    @property
    def num_tokens(self) -> int:
        """Return the length of prompt and output so far."""
        return self.tokens.length

    @property
    def num_output(self) -> int:
        """Return the number of output tokens so far."""
        return self.tokens.length - self.num_prompt

    @property
    def max_growth(self) -> int:
        """Return how many tokens the sequence may still produce."""
        if self.output is None:
            return 0
        asked = self.request.params.max_new_tokens - self.num_output
        return min(asked, self.max_tokens - self.tokens.length)

    @property
    def match_limit(self) -> int:
        """Return how many tokens may come from the cache (rule 5: one is always computed).

        Where prompt log-probabilities are still missing, the logits before the first missing one
        must be computed too.
        """
        last = self.tokens.length - 1
        start = self.request.logprob_start
        if start is None or start + len(self.input_logprobs) >= self.num_prompt:
            return last
        return min(last, start + len(self.input_logprobs) - 1)

    @property
    def logprob_from(self) -> int:
        """Return the first prompt index whose log-probability is missing, or -1."""
        start = self.request.logprob_start
        if start is None or start + len(self.input_logprobs) >= self.num_prompt:
            return -1
        return start + len(self.input_logprobs)

    @property
    def todo(self) -> int:
        """Return the number of tokens without K/V; 1 means the next step is a decode."""
        return self.tokens.length - self.num_computed
