"""A loop whose model is a table, so that distributions can be computed by hand and drawn fast."""

import functools
import math
import queue
import random
import zlib

import numpy as np

from sgjax.fsm.cache import GrammarCache, GrammarCompiler
from sgjax.fsm.portable import PortableKernels
from sgjax.fsm.spec import GrammarSpec
from sgjax.fsm.vocabulary import unpack_ids
from sgjax.tokens.byte import ByteTokenizer
from sgjax.types import Completion, Delta, FinishKind, FinishReason, TokenLogprob, Wants


@functools.cache
def logprobs(before):
    """The table: log-probabilities of all 257 tokens behind others."""
    rng = np.random.default_rng(zlib.crc32(repr(before).encode()))
    logits = rng.normal(0, 1.5, ByteTokenizer.vocab_size)
    return logits - np.log(np.exp(logits).sum())


def score(prompt, output):
    """The log-probability of an output."""
    return sum(logprobs((*prompt, *output[:i]))[token] for i, token in enumerate(output))


class TableLoop:
    """Answers requests at once, in the order of submission."""

    def __init__(self, **sampler):
        self.tokenizer = ByteTokenizer()
        self.spec = GrammarSpec(sampler=sampler["sampler"], kernels="numpy")
        compiler = GrammarCompiler(
            self.tokenizer, self.tokenizer.vocab_size, PortableKernels(), self.spec
        )
        self.grammars = GrammarCache(compiler)
        self.posted = queue.SimpleQueue()
        self.seen, self.aborted, self.released = [], [], []
        self.silent = False

    def post(self, function):
        self.posted.put(function)

    def run(self, done):
        """Run what was posted until `done()`."""
        while not done():
            self.posted.get(timeout=30)()

    def abort(self, request_id):
        self.aborted.append(request_id)

    def release_hint(self, hint_id, followers):
        self.released.append((hint_id, followers))

    def submit(self, requests):
        for request, listener in requests:
            self.seen.append(request)
            if not self.silent:
                listener(Delta(request.id, "", (), self._complete(request)))

    def _complete(self, request):
        tokens, start = request.tokens, request.logprob_start
        entries, output, out = None, (), None
        finish = FinishReason(FinishKind.STOP)
        if request.wants is Wants.LOGPROBS:
            rest = range(start + 1, len(tokens))
            own = [TokenLogprob(float(logprobs(tokens[:i])[tokens[i]]), tokens[i]) for i in rest]
            entries = (TokenLogprob(None, tokens[start]), *own)
        elif request.constraint is not None:
            out, finish = self.draw(request)
            output = tuple(e.token_id for e in out)
        return Completion(
            request.id, "", output, len(tokens), 0, 0, finish, entries, out, 0.0, 0.0, 0.0
        )

    @functools.cache  # noqa: B019 - a loop lives as long as its test
    def _choices(self, grammar, state, before):
        """The tokens that a mask leaves, as entries of an output, and their running weights."""
        known = logprobs(before)
        allowed = unpack_ids(grammar.rows[grammar.mask_row(state)])
        weights = np.exp(known[allowed])
        mass = math.log(weights.sum())
        choices = [TokenLogprob(float(known[t]), t, (), mass) for t in allowed.tolist()]
        return choices, np.cumsum(weights).tolist()

    def draw(self, request):
        """What a masking engine does."""
        grammar = self.grammars.request(request.constraint).result()
        rng, state, out = random.Random(request.params.seed), grammar.start, []
        before = request.tokens
        while len(out) < request.params.max_new_tokens:
            if grammar.is_final(state):
                return tuple(out), FinishReason(FinishKind.STOP)
            choices, running = self._choices(grammar, state, before)
            (entry,) = rng.choices(choices, cum_weights=running)
            out.append(entry)
            token, before = entry.token_id, (*before, entry.token_id)
            if token in self.tokenizer.end_ids:
                return tuple(out), FinishReason(FinishKind.STOP, token)
            state = grammar.advance(state, token)
        return tuple(out), FinishReason(FinishKind.LENGTH)
