"""TokenTable: which tokens each state of a byte automaton allows, and where they lead.

HOST. Imports numpy, errors, utf8, vocabulary and kernels. Small automata get their whole table at
once; larger ones state by state as they are asked, remembered. Equal rows are stored once.
"""

import threading

import numpy as np
from numpy.typing import NDArray

from sgjax.errors import GrammarError
from sgjax.fsm.kernels import Ints, Kernels, RowStore
from sgjax.fsm.utf8 import ByteDfa
from sgjax.fsm.vocabulary import Vocabulary, unpack_ids

EAGER_STATES = 30_000
"""Automata up to this size get their whole table at once."""


class TokenTable:
    """The tokens that each state allows.

    Args:
        dfa: the automaton.
        vocabulary: the tokens.
        kernels: the implementation that walks the trie.
        max_bytes: size budget of the rows.
        eager: compute all rows now; None decides by the size of the automaton.

    Raises:
        GrammarError: the rows exceed the budget, or a state is reached from which the vocabulary
            has no way on (possible only if some byte is no token).
    """

    def __init__(
        self,
        dfa: ByteDfa,
        vocabulary: Vocabulary,
        kernels: Kernels,
        max_bytes: int,
        eager: bool | None = None,
    ) -> None:
        self._dfa = dfa
        self._vocabulary = vocabulary
        self._kernels = kernels
        self.store = RowStore(vocabulary.num_words, max_bytes)
        self._row_of = np.full(dfa.num_states, -1, np.int32)
        self._rows = memoryview(self._row_of)  # type: ignore[arg-type]
        self._lock = threading.Lock()
        self._next: dict[tuple[int, int], int] = {}
        if eager or (eager is None and dfa.num_states <= EAGER_STATES):
            self._row_of[:] = self._compute(np.arange(dfa.num_states, dtype=np.int32))
        if not vocabulary.lone_bytes >= dfa.live_bytes:
            self._refuse_dead_ends()

    @property
    def rows(self) -> NDArray[np.uint32]:
        """Return u32[U, W] distinct masks known so far; later ones are appended."""
        return self.store.rows

    def row(self, state: int) -> int:
        """Return the index in `rows` of a state's mask."""
        found: int = self._rows[state]
        if found < 0:
            with self._lock:
                found = self._rows[state]
                if found < 0:
                    found = int(self._compute(np.array([state], np.int32))[0])
                    self._row_of[state] = found
        return found

    def mask(self, state: int) -> NDArray[np.uint32]:
        """Return the mask u32[W] of a state."""
        row = self.row(state)
        mask: NDArray[np.uint32] = self.store.buffer[row]
        return mask

    def advance(self, state: int, token_id: int) -> int:
        """Return the state after a token, -1 if the token is not allowed there."""
        found = self._next.get((state, token_id))
        if found is None:
            data = self._vocabulary.token_bytes[token_id : token_id + 1]
            found = self._dfa.walk(state, data[0]) if data and data[0] else -1
            if len(self._next) > 200_000:  # a memo, not a record
                self._next.clear()
            self._next[state, token_id] = found
        return found

    def _compute(self, states: Ints) -> Ints:
        vocabulary = self._vocabulary
        return self._kernels.masks(
            vocabulary.trie, self._dfa.table, states, vocabulary.end_row, self.store
        )

    def _refuse_dead_ends(self) -> None:
        seen, todo = {0}, [0]
        while todo:
            state = todo.pop()
            row = self.mask(state)
            if not row.any():
                raise GrammarError(
                    "the vocabulary lacks tokens for some text of this pattern, so a generation "
                    "could get stuck; use grammar.level: byte or another pattern"
                )
            for token_id in unpack_ids(row).tolist():
                if token_id in self._vocabulary.end_ids:
                    continue
                target = self.advance(state, token_id)
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
