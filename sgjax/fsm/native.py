"""NativeKernels: the hot loops of compiling grammars in C, compiled at first use.

HOST. Imports numpy, errors, kernels' records and portable. native.c is compiled with the machine's
own compiler; which implementation is taken is decided once, by `load_kernels`, and reported.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sgjax.errors import UnsupportedBackend
from sgjax.fsm.kernels import DEAD, Bools, Budget, ByteTable, Ints, Kernels, Nfa, RowStore, Trie
from sgjax.fsm.portable import PortableKernels

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
            node_class, depth, skip, token_first, token_ids = self._merged(trie, table, node_class)
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

    def _merged(
        self, trie: Trie, table: ByteTable, node_class: NDArray[np.uint8]
    ) -> tuple[NDArray[Any], ...]:
        """Return the trie with equal classes merged: class, depth, skip, token_first, token_ids."""
        n, C = len(trie.byte), table.delta.shape[1]
        live = (table.delta != DEAD).any(axis=0)
        outs = (
            np.empty(n, np.uint8), np.empty(n, np.int16), np.empty(n, np.int32),
            np.empty(n + 1, np.int32), np.empty(len(trie.token_ids), np.int32),
        )  # fmt: skip
        count = _check_memory(
            self._lib.merge_trie(
                n,
                _at(node_class),
                _at(trie.skip),
                _at(trie.token_first),
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
