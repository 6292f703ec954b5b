"""PortableKernels: the hot loops of compiling grammars in numpy and Python, for any machine.

HOST. Imports numpy and kernels' protocol. Slower than native.c, and what that is tested against.
"""

import itertools
import time

import numpy as np
from numpy.typing import NDArray

from sgjax.fsm.kernels import DEAD, Bools, Budget, ByteTable, Ints, Nfa, RowStore, Trie


class PortableKernels:
    """Implement `Kernels` with numpy."""

    name = "numpy"

    def determinize(self, nfa: Nfa, budget: Budget) -> tuple[Ints, Bools]:
        """See `Kernels`."""
        deadline = time.monotonic() + budget.max_s
        C = nfa.sets.shape[1]
        closures = _Closures(nfa)
        start = closures.of(frozenset((nfa.start,)))
        numbers = {start: 0}
        todo = [start]
        rows: list[list[int]] = []
        for subset in todo:  # grows while it is walked
            row = [-1] * C
            for c, seeds in enumerate(closures.moves(subset, C)):
                if seeds:
                    target = closures.of(seeds)
                    if target not in numbers:
                        numbers[target] = len(todo)
                        todo.append(target)
                    row[c] = numbers[target]
            rows.append(row)
            if len(todo) > budget.max_states:
                raise budget.too_many_states()
            if time.monotonic() > deadline:
                raise budget.out_of_time()
        accepting = np.array([nfa.final in subset for subset in todo], np.bool_)
        return np.array(rows, np.int32).reshape(-1, C), accepting

    def minimize(self, trans: Ints, accepting: Bools) -> tuple[Ints, Bools]:
        """See `Kernels`."""
        alive = steps_to_end(trans, accepting) >= 0
        if not alive[0]:
            return trans[:0], accepting[:0]
        S, C = trans.shape
        # One more state, S, stands for "dead"; it keeps block 0 of its own.
        trans = np.where((trans >= 0) & alive[trans], trans, S)
        trans = np.concatenate([trans, np.full((1, C), S)])
        _, block = np.unique(np.append(np.where(alive, 1 + accepting, 0), 0), return_inverse=True)
        count = 0
        while (found := int(block.max()) + 1) != count:
            count = found
            keys = np.concatenate([block[:, None], block[trans]], axis=1)
            _, block = np.unique(keys, axis=0, return_inverse=True)
            block = np.where(block == block[S], 0, 1 + block)
            _, block = np.unique(block, return_inverse=True)
        order = [0]
        number = {int(block[0]): 0}
        out: list[list[int]] = []
        for state in order:
            row = []
            for target in trans[state].tolist():
                b = int(block[target])
                if b and b not in number:
                    number[b] = len(order)
                    order.append(target)
                row.append(number[b] if b else -1)
            out.append(row)
        return np.array(out, np.int32).reshape(-1, C), accepting[order]

    def masks(
        self, trie: Trie, table: ByteTable, states: Ints, end_row: NDArray[np.uint32],
        store: RowStore,
    ) -> Ints:  # fmt: skip
        """See `Kernels`."""
        node_class = table.byte_class[trie.byte[trie.order]]
        known = {row.tobytes(): i for i, row in enumerate(store.rows)}
        mask_of = np.empty(len(states), np.int32)
        for i, state in enumerate(states.tolist()):
            row = _mask(trie, node_class, table, state, end_row)
            key = row.tobytes()
            if key not in known:
                if store.count == len(store.buffer):
                    store.grow()
                store.buffer[store.count] = row
                known[key] = store.count
                store.count += 1
            mask_of[i] = known[key]
        return mask_of


class _Closures:
    """Epsilon closures, cut down to the states that matter: with edges, or final."""

    def __init__(self, nfa: Nfa) -> None:
        self._eps = _groups(nfa.eps_first, nfa.eps_dst)
        sets, dst = _groups(nfa.edge_first, nfa.edge_set), _groups(nfa.edge_first, nfa.edge_dst)
        self._edges = [list(zip(s, d, strict=True)) for s, d in zip(sets, dst, strict=True)]
        self._classes = [np.flatnonzero(row).tolist() for row in nfa.sets]
        self._final = nfa.final
        self._known: dict[frozenset[int], frozenset[int]] = {}

    def of(self, seeds: frozenset[int]) -> frozenset[int]:
        """Return the closure of some states."""
        found = self._known.get(seeds)
        if found is None:
            seen, stack = set(seeds), list(seeds)
            while stack:
                for target in self._eps[stack.pop()]:
                    if target not in seen:
                        seen.add(target)
                        stack.append(target)
            found = frozenset(q for q in seen if self._edges[q] or q == self._final)
            self._known[seeds] = found
        return found

    def moves(self, subset: frozenset[int], num_classes: int) -> list[frozenset[int]]:
        """Return for each class the states it leads to."""
        by_class: list[set[int]] = [set() for _ in range(num_classes)]
        for state in subset:
            for number, target in self._edges[state]:
                for c in self._classes[number]:
                    by_class[c].add(target)
        return [frozenset(targets) for targets in by_class]


def token_targets(
    trie: Trie, table: ByteTable, state: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the tokens that a state allows, and the states they lead to."""
    return _walk(trie, table.byte_class[trie.byte[trie.order]], table, state)


def _walk(
    trie: Trie, node_class: NDArray[np.uint8], table: ByteTable, state: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """As `token_targets`; all live nodes of one depth are advanced at once."""
    nodes = np.arange(trie.child_first[0])
    states = np.full(len(nodes), state)
    tokens, targets = [trie.token_ids[:0]], [states[:0]]
    while len(nodes):
        step = table.delta[table.row_of[states], node_class[nodes]]
        live = step != DEAD
        nodes, states = nodes[live], (states + step)[live]
        old = trie.order[nodes]
        first, past = trie.token_first[old], trie.token_first[old + 1]
        tokens.append(trie.token_ids[ranges(first, past)])
        targets.append(np.repeat(states, past - first))
        first, past = trie.child_first[nodes], trie.child_first[nodes + 1]
        states = np.repeat(states, past - first)
        nodes = ranges(first, past)
    return np.concatenate(tokens), np.concatenate(targets)


def _mask(
    trie: Trie, node_class: NDArray[np.uint8], table: ByteTable, state: int,
    end_row: NDArray[np.uint32],
) -> NDArray[np.uint32]:  # fmt: skip
    """Return the mask of one state."""
    bits = np.zeros(32 * len(end_row), np.uint8)
    bits[_walk(trie, node_class, table, state)[0]] = 1
    row = np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)
    return row | end_row if table.accepting[state] else row


def ranges(first: NDArray[np.integer], past: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the integers of all ranges [first[i], past[i]), one after the other."""
    counts = (past - first).astype(np.int64)
    total = int(counts.sum())
    before = np.cumsum(counts) - counts
    found: NDArray[np.int64] = np.arange(total) + np.repeat(first - before, counts)
    return found


def _groups(first: Ints, values: Ints) -> list[list[int]]:
    ends = first.tolist()
    all_values = values.tolist()
    return [all_values[a:b] for a, b in itertools.pairwise(ends)]


def steps_to_end(trans: Ints, accepting: Bools) -> Ints:
    """Return i32[S], the fewest of i32[S, C] transitions to an accepting state; -1: none leads."""
    sources, columns = np.nonzero(trans >= 0)
    targets = trans[sources, columns]
    by_target = np.argsort(targets, kind="stable")
    sources = sources[by_target]
    first = np.searchsorted(targets[by_target], np.arange(len(trans) + 1))
    steps = np.where(accepting, 0, -1).astype(np.int32)
    frontier, count = np.flatnonzero(accepting), 0
    while len(frontier):
        count += 1
        found = np.unique(sources[ranges(first[frontier], first[frontier + 1])])
        frontier = found[steps[found] < 0]
        steps[frontier] = count
    return steps
