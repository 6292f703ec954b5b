"""The hot loops of compiling grammars, in two implementations with equal results.

HOST. Imports numpy, errors. `PortableKernels` (portable.py) needs nothing else; `NativeKernels`
runs native.c, compiled with the machine's own compiler at first use. Which one is taken is decided
once, by `load_kernels`, and is part of what a grammar cache reports.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sgjax.errors import GrammarError, UnsupportedBackend

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


KernelChoice = Literal["auto", "c", "numpy"]


def load_kernels(choice: KernelChoice, folder: Path | None) -> Kernels:
    """Return the implementation to use.

    Args:
        choice: `c` compiles native.c; `auto` does so where there is a C compiler and a folder, and
            else takes the portable one; the result's `name` says which it is.
        folder: where compiled libraries are kept, or None.

    Raises:
        UnsupportedBackend: `c` was asked for, and there is no compiler, no folder, or it fails.
    """
    from sgjax.fsm.portable import PortableKernels

    compiler = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    if choice == "numpy" or (choice == "auto" and (compiler is None or folder is None)):
        return PortableKernels()
    if compiler is None or folder is None:
        raise UnsupportedBackend(
            "grammar kernels 'c' need a C compiler (cc, gcc or clang) and a cache folder; install "
            "one or use kernels: numpy"
        )
    return NativeKernels(_compiled(compiler, folder))


class NativeKernels:
    """Run native.c.

    Args:
        library: the compiled library.
    """

    name = "c"

    def __init__(self, library: Path) -> None:
        self._lib = ctypes.CDLL(str(library))
        for function in (
            self._lib.determinize,
            self._lib.minimize,
            self._lib.merge_trie,
            self._lib.masks,
        ):
            function.restype = ctypes.c_int64

    def determinize(self, nfa: Nfa, budget: Budget) -> tuple[Ints, Bools]:
        """See `Kernels`."""
        C = nfa.sets.shape[1]
        # Virtual memory only: pages are touched as states are found.
        trans = np.empty((budget.max_states, C), np.int32)
        accepting = np.empty(budget.max_states, np.bool_)
        count = self._lib.determinize(
            nfa.num_states, nfa.start, nfa.final, _at(nfa.eps_first), _at(nfa.eps_dst),
            _at(nfa.edge_first), _at(nfa.edge_set), _at(nfa.edge_dst), C, _at(nfa.sets),
            budget.max_states, ctypes.c_double(budget.max_s), _at(trans), _at(accepting),
        )  # fmt: skip
        if count == -1:
            raise budget.too_many_states()
        if count == -2:
            raise budget.out_of_time()
        _check_memory(count)
        return trans[:count].copy(), accepting[:count].copy()

    def minimize(self, trans: Ints, accepting: Bools) -> tuple[Ints, Bools]:
        """See `Kernels`."""
        trans, accepting = trans.copy(), accepting.copy()
        S, C = trans.shape
        count = _check_memory(self._lib.minimize(S, C, _at(trans), _at(accepting)))
        return trans[:count].copy(), accepting[:count].copy()

    def masks(
        self, trie: Trie, table: ByteTable, states: Ints, end_row: NDArray[np.uint32],
        store: RowStore,
    ) -> Ints:  # fmt: skip
        """See `Kernels`."""
        node_class = table.byte_class[trie.byte]
        depth, skip, token_first, token_ids = (
            trie.depth, trie.skip, trie.token_first, trie.token_ids,
        )  # fmt: skip
        if len(states) >= _MERGE_FROM:
            node_class, depth, skip, token_first, token_ids = self._merged(trie, table)
        mask_of = np.empty(len(states), np.int32)
        count = ctypes.c_int32(store.count)
        done = 0
        while done < len(states):
            left = states[done:]
            done += _check_memory(
                self._lib.masks(
                    len(node_class),
                    _at(node_class),
                    _at(depth),
                    _at(skip),
                    _at(token_first),
                    _at(token_ids),
                    table.delta.shape[1],
                    _at(table.row_of),
                    _at(table.delta),
                    _at(table.accepting),
                    _at(end_row),
                    len(end_row),
                    len(left),
                    _at(left),
                    len(store.buffer),
                    ctypes.byref(count),
                    _at(store.buffer),
                    _at(store.hashes),
                    _at(mask_of[done:]),
                    trie.max_depth,
                )
            )
            store.count = count.value
            if done < len(states):
                store.grow()
        return mask_of

    def _merged(self, trie: Trie, table: ByteTable) -> tuple[NDArray[Any], ...]:
        """Return the trie with equal classes merged: class, depth, skip, token_first, token_ids."""
        n, C = len(trie.byte), table.delta.shape[1]
        # A root before the first node, so that all nodes have a parent.
        node_class = np.concatenate([np.zeros(1, np.uint8), table.byte_class[trie.byte]])
        skip = np.concatenate([[n], trie.skip]).astype(np.int32) + 1
        token_first = np.concatenate([[0], trie.token_first]).astype(np.int32)
        live = (table.delta != DEAD).any(axis=0)
        outs = (
            np.empty(n, np.uint8), np.empty(n, np.int16), np.empty(n, np.int32),
            np.empty(n + 1, np.int32), np.empty(len(trie.token_ids), np.int32),
        )  # fmt: skip
        count = _check_memory(
            self._lib.merge_trie(
                n + 1,
                _at(node_class),
                _at(skip),
                _at(token_first),
                _at(trie.token_ids),
                C,
                _at(live),
                trie.max_depth,
                *[_at(out) for out in outs],
            )
        )
        node_class, depth, skip, token_first, token_ids = outs
        return node_class[:count], depth[:count], skip[:count], token_first[: count + 1], token_ids


_MERGE_FROM = 48
"""States from which on merging the trie costs less than it saves."""


def _at(array: NDArray[Any]) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def _check_memory(count: int) -> int:
    if count < 0:
        raise MemoryError("compiling a grammar ran out of memory")
    return count


def _compiled(compiler: str, folder: Path) -> Path:
    """Return the library, compiling it unless this source was compiled here before."""
    source = Path(__file__).with_name("native.c")
    flags = ["-O3", "-std=gnu11", "-shared", "-fPIC"]
    key = hashlib.sha256(source.read_bytes() + repr((compiler, flags, os.uname())).encode())
    library = folder / f"grammar-{key.hexdigest()[:16]}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    # Compiled aside and moved in whole, so that processes which start together do no harm.
    with tempfile.TemporaryDirectory(dir=folder) as aside:
        made = Path(aside) / library.name
        command = [compiler, *flags, "-o", str(made), str(source)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise UnsupportedBackend(
                f"{' '.join(command)} failed: {result.stderr.strip()[:500]}; repair the compiler "
                "or use kernels: numpy"
            )
        made.replace(library)
    return library
