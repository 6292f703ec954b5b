"""Canonical masks: only token sequences that the tokenizer itself would write.

HOST. Imports its neighbours. A mask over all tokenisations lets a model spell a text in ways it
never saw in training, and so shifts the distribution (paper, appendix B.3). Here a token may follow
another only if the tokenizer writes the two side by side in some text, and only if the text can be
finished so. Rows are worked out on demand: in free text there is one for every token before.
"""

import threading
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sgjax.errors import GrammarError
from sgjax.fsm.grammar import FsmGrammar
from sgjax.fsm.kernels import Bools, Ints, RowStore
from sgjax.fsm.pairs import CanonicalPairs, Tail
from sgjax.fsm.portable import token_targets
from sgjax.fsm.utf8 import ByteDfa
from sgjax.fsm.vocabulary import Vocabulary, pack_ids

State = tuple[int, Tail]
"""A state of the inner grammar, and the tail of the output."""

_MANY = 256
"""Tokens from which on all the vocabulary is looked at together."""
_WITNESSES = 16
"""Ways on that are tried to show that a state lives behind most tokens."""


class CanonicalGrammar:
    """A grammar whose state also knows the last token, and allows only canonical successors.

    Args:
        inner: the grammar over all tokenisations.
        vocabulary: the tokens.
        pairs: which may follow which; shared by all grammars of a vocabulary.
        max_bytes: size budget of the masks.

    Raises:
        GrammarError: no text of the language can be written so.
    """

    start = 0

    def __init__(
        self, inner: FsmGrammar, vocabulary: Vocabulary, pairs: CanonicalPairs, max_bytes: int
    ) -> None:
        self._inner = inner
        self._vocabulary = vocabulary
        self._pairs = pairs
        self._states: list[State] = [(inner.start, ())]
        self._numbers = {self._states[0]: 0}
        self._max_bytes = max_bytes
        self._begin_rows()
        self._alive: dict[State, bool] = {}
        self._living: dict[int, Bools] = {}
        self._edges: dict[int, tuple[Ints, Ints]] = {}
        self._lock = threading.RLock()
        if not self._is_alive((inner.start, ())):
            raise GrammarError(
                "no text of the pattern can be written in the tokenizer's own tokens; use "
                "grammar.mask: all"
            )

    @property
    def dfa(self) -> ByteDfa:
        """Return the automaton of all texts."""
        return self._inner.dfa

    def for_request(self) -> "CanonicalGrammar":
        """Return this grammar: it is shared by all requests."""
        return self

    @property
    def rows(self) -> NDArray[np.uint32]:
        """Return u32[U, W] distinct masks known so far."""
        return self.store.rows

    def mask_row(self, state: int) -> int:
        """See `Grammar`."""
        with self._lock:
            row = self._row_of.get(state)
            if row is None:
                if self.store.is_full:  # free text has a row for every token that came before
                    self._begin_rows()
                row = self._row_of[state] = self._compute(*self._states[state])
            return row

    def advance(self, state: int, token_id: int) -> int:
        """See `Grammar`."""
        inner, tail = self._states[state]
        target = self._inner.advance(inner, token_id)
        if target < 0 or not self._pairs.allows(tail, token_id):
            return -1
        reached = (target, self._pairs.follow(tail, token_id))
        with self._lock:
            # As in the mask: a jump must not lead where no text can be finished from, either.
            if not self._is_alive(reached):
                return -1
            number = self._numbers.setdefault(reached, len(self._states))
            if number == len(self._states):
                self._states.append(reached)
            return number

    def is_accepting(self, state: int) -> bool:
        """See `Grammar`."""
        return self._inner.is_accepting(self._states[state][0])

    def is_final(self, state: int) -> bool:
        """Return whether the text may end here and no token can follow."""
        if not self.is_accepting(state):
            return False
        with self._lock:
            row = self.mask_row(state)  # first: it may add to the store, or begin another
            mask = self.store.rows[row]
        return not (mask & ~self._vocabulary.end_row).any()

    def forced(self, state: int) -> tuple[bytes, frozenset[int] | None]:
        """See `Grammar`."""
        return self._inner.forced(self._states[state][0])

    def _begin_rows(self) -> None:
        """Keep rows in a new store; those that were handed out stay as they are in the old one."""
        self.store = RowStore(self._vocabulary.num_words, self._max_bytes)
        self._row_numbers: dict[bytes, int] = {}
        self._row_of: dict[int, int] = {}

    def _compute(self, inner: int, tail: Tail) -> int:
        tokens, targets = self._successors(inner)
        if len(tokens) < _MANY:
            allowed = np.array([self._pairs.allows(tail, t) for t in tokens.tolist()], np.bool_)
        else:
            allowed = self._pairs.row(tail)[tokens]
        tokens, targets = tokens[allowed], targets[allowed]
        row = pack_ids(tokens[self._are_alive(tail, tokens, targets)], self._vocabulary.num_words)
        if self._inner.is_accepting(inner):
            row |= self._vocabulary.end_row
        return self.store.add(row, self._row_numbers)

    def _are_alive(self, tail: Tail, tokens: Ints, targets: Ints) -> Bools:
        """Return which tokens behind a tail lead to states from which a text can be finished."""
        alive = self._inner.dfa.table.accepting[targets]
        if len(tokens) >= _MANY:
            alone = self._pairs.alone(tail)[tokens]
            for target in np.unique(targets[~alive]).tolist():
                there = targets == target
                alive |= there & alone & self._lives_behind(target)[tokens]
        for at in np.flatnonzero(~alive).tolist():
            token = int(tokens[at])
            alive[at] = self._is_alive((int(targets[at]), self._pairs.follow(tail, token)))
        return alive

    def _lives_behind(self, inner: int) -> Bools:
        """Return bool[V], tokens that as a tail surely let a text be finished from a state."""
        living = self._living.get(inner)
        if living is None:
            living = np.zeros(self._pairs.num_ids, np.bool_)
            tokens, targets = (ways[:_WITNESSES].tolist() for ways in self._successors(inner))
            for token, target in zip(tokens, targets, strict=True):
                behind = self._pairs.before(token)
                if behind.any() and self._is_alive((target, (token,))):
                    living |= behind
            self._living[inner] = living
        return living

    def _is_alive(self, state: State) -> bool:
        """Return whether a text can be finished canonically from a state.

        Depth first, nearest to an accepting state first; what was left without success is dead.
        """
        known = self._alive.get(state)
        if known is not None:
            return known
        path = [(state, self._options(state))]
        seen = {state}
        while path:
            at, options = path[-1]
            if self._alive.get(at) or self._inner.is_accepting(at[0]):
                self._alive.update({s: True for s, _ in path})
                return True
            new = (o for o in options if o not in seen and self._alive.get(o, True))
            following = next(new, None)
            if following is None:
                path.pop()
                continue
            seen.add(following)
            path.append((following, self._options(following)))
        # Everything that was reached has been tried, so all of it is dead.
        self._alive.update(dict.fromkeys(seen, False))
        return False

    def _options(self, state: State) -> Iterator[State]:
        inner, tail = state
        for token, target in zip(*self._successors(inner), strict=True):
            if self._pairs.allows(tail, int(token)):
                yield int(target), self._pairs.follow(tail, int(token))

    def _successors(self, inner: int) -> tuple[Ints, Ints]:
        """Return the tokens allowed in a state and where they lead, nearest to the end first."""
        found = self._edges.get(inner)
        if found is None:
            tokens, targets = token_targets(self._vocabulary.trie, self.dfa.table, inner)
            order = np.argsort(self.dfa.distance[targets], kind="stable")
            found = tokens[order], targets[order].astype(np.int32)
            self._edges[inner] = found
        return found
