"""The hot loops of compiling grammars: their protocol, and the records that they work on.

HOST. Imports numpy, errors. Two implementations with equal results stand beside this file:
portable.py in numpy, native.py in C.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sgjax.errors import GrammarError

Ints = NDArray[np.int32]
Bools = NDArray[np.bool_]
DEAD = np.iinfo(np.int32).min
"""Marks a missing transition where transitions are stored as differences."""


@dataclass(frozen=True)
class Budget:
    """What compiling one grammar may take.

    Attributes:
        max_states: states of any automaton on the way.
        max_s: seconds for all of it.
        max_bytes: bytes of its masks.
    """

    max_states: int = 200_000
    max_s: float = 20.0
    max_bytes: int = 256 << 20

    def too_many_states(self) -> GrammarError:
        """Return the error that names the size budget."""
        return GrammarError(
            f"the pattern needs more than {self.max_states} states (the size budget, "
            "grammar.max_states); use smaller repeats or raise it"
        )

    def out_of_time(self) -> GrammarError:
        """Return the error that names the time budget."""
        return GrammarError(
            f"the pattern did not compile within {self.max_s:g} s (the time budget, "
            "grammar.max_compile_s); simplify it or raise the budget"
        )


@dataclass(frozen=True)
class Nfa:
    """A nondeterministic automaton over classes of characters, with epsilon edges.

    Attributes:
        num_states: states; edges are grouped by their source.
        start, final: the states it begins and accepts in.
        eps_first, eps_dst: epsilon edges of state q are eps_dst[eps_first[q]:eps_first[q + 1]].
        edge_first, edge_set, edge_dst: likewise its edges: a row of `sets`, and where they lead.
        sets: bool[n, C] sets of classes.
    """

    num_states: int
    start: int
    final: int
    eps_first: Ints
    eps_dst: Ints
    edge_first: Ints
    edge_set: Ints
    edge_dst: Ints
    sets: Bools


@dataclass(frozen=True)
class Trie:
    """All token byte strings as a trie in preorder; node 0 is the first child of the root.

    Attributes:
        byte: u8[n] the byte that leads to each node.
        depth: i16[n] its depth, from 1.
        skip: i32[n] one past the last node of its subtree.
        token_first, token_ids: tokens that end at node i are
            token_ids[token_first[i]:token_first[i + 1]].
        order: i32[n] the nodes breadth first, so that children of one node lie side by side.
        child_first: i32[n + 1] children of order[j] are order[child_first[j]:child_first[j + 1]].
    """

    byte: NDArray[np.uint8]
    depth: NDArray[np.int16]
    skip: Ints
    token_first: Ints
    token_ids: Ints
    order: Ints
    child_first: Ints

    @property
    def max_depth(self) -> int:
        """Return the length of the longest token in bytes."""
        return int(self.depth.max(initial=0))


@dataclass(frozen=True)
class ByteTable:
    """Transitions of a byte automaton, compact: rows that differ only by an offset are one row.

    Attributes:
        byte_class: u8[256] class of each byte.
        row_of: i32[S] row of each state.
        delta: i32[rows, C] target minus source, or DEAD.
        accepting: bool[S].
    """

    byte_class: NDArray[np.uint8]
    row_of: Ints
    delta: Ints
    accepting: Bools


class RowStore:
    """Mask rows u32[U, W], each stored once, growing.

    Args:
        num_words: W.
        max_bytes: size budget.
    """

    def __init__(self, num_words: int, max_bytes: int) -> None:
        self._max_rows = max(1, max_bytes // (4 * num_words))
        self._data = np.zeros((min(16, self._max_rows), num_words), np.uint32)
        self.hashes = np.zeros((len(self._data), 2), np.uint64)
        self.count = 0

    @property
    def rows(self) -> NDArray[np.uint32]:
        """Return u32[U, W]; later rows may be added, these never change."""
        return self._data[: self.count]

    @property
    def buffer(self) -> NDArray[np.uint32]:
        """Return the storage, free rows included."""
        return self._data

    @property
    def is_full(self) -> bool:
        """Return whether the size budget leaves no room for another row."""
        return self.count >= self._max_rows

    def add(self, row: NDArray[np.uint32], numbers: dict[bytes, int]) -> int:
        """Return the number of a row, which is stored if it is new.

        Args:
            row: u32[W].
            numbers: rows added so far, by their bytes; kept by the caller.
        """
        number = numbers.setdefault(row.tobytes(), self.count)
        if number == self.count:
            if number == len(self._data):
                self.grow()
            self._data[number] = row
            self.count += 1
        return number

    def grow(self) -> None:
        """Make room for more rows.

        Raises:
            GrammarError: the size budget is used up.
        """
        capacity = len(self._data)
        if capacity >= self._max_rows:
            raise GrammarError(
                f"the pattern needs more than {capacity} different masks (the size budget, "
                "grammar.max_bytes); simplify it or raise the budget"
            )
        more = min(2 * capacity, self._max_rows)
        data = np.zeros((more, self._data.shape[1]), np.uint32)
        hashes = np.zeros((more, 2), np.uint64)
        data[:capacity], hashes[:capacity] = self._data, self.hashes
        self._data, self.hashes = data, hashes


class Kernels(Protocol):
    """Subset construction, minimisation and token masks."""

    @property
    def name(self) -> str:
        """Return `c` or `numpy`."""
        ...

    def determinize(self, nfa: Nfa, budget: Budget) -> tuple[Ints, Bools]:
        """Return a DFA as i32[S, C] transitions (-1: none) and accepting bool[S]; start is 0.

        Raises:
            GrammarError: a budget is used up.
        """
        ...

    def minimize(self, trans: Ints, accepting: Bools) -> tuple[Ints, Bools]:
        """Return the minimal DFA without dead states, breadth first from 0; S = 0 if empty."""
        ...

    def masks(
        self, trie: Trie, table: ByteTable, states: Ints, end_row: NDArray[np.uint32],
        store: RowStore,
    ) -> Ints:  # fmt: skip
        """Return the row in `store` of each state's allowed tokens.

        Args:
            trie: the vocabulary.
            table: the automaton.
            states: i32[n] states asked for.
            end_row: u32[W] bits of the end ids, allowed in accepting states.
            store: rows are added to it.
        """
        ...
