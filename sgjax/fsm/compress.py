"""The compressed automaton: runs of singular edges, whose text is forced (paper, section 3.2).

HOST. Imports utf8. A singular edge leaves a state that does not accept by exactly one byte. Text is
forced up to the last whole character, because a jump never ends inside one.
"""

import numpy as np

from sgjax.fsm.kernels import DEAD, Ints
from sgjax.fsm.utf8 import ByteDfa


class CompressedFsm:
    """What text must follow each state of a byte automaton.

    Args:
        dfa: the automaton.
    """

    def __init__(self, dfa: ByteDfa) -> None:
        self._dfa = dfa
        self._byte = _singular_bytes(dfa)
        self._single = memoryview(self._byte)  # type: ignore[arg-type]
        self._known: dict[int, tuple[bytes, int]] = {}

    def forced(self, state: int) -> tuple[bytes, int]:
        """Return the bytes that must follow a state, and the state they lead to.

        The bytes end at the end of a character; they are empty where there is a choice, where the
        text may end, or where only a part of a character is certain.
        """
        found = self._known.get(state)
        if found is None:
            found = self._known[state] = self._follow(state)
        return found

    @property
    def num_singular(self) -> int:
        """Return the number of states that a singular edge leaves."""
        return int((self._byte >= 0).sum())

    def _follow(self, state: int) -> tuple[bytes, int]:
        boundary, single = self._dfa.boundary, self._single
        data = bytearray()
        end, length, at = state, 0, state
        seen = {state}
        while (byte := single[at]) >= 0:
            data.append(byte)
            at = self._dfa.walk(at, bytes((byte,)))
            if at in seen:
                break
            seen.add(at)
            if boundary[at]:
                end, length = at, len(data)
        return bytes(data[:length]), end


def _singular_bytes(dfa: ByteDfa) -> Ints:
    """Return i32[S] the only byte that leaves a state; -1 for a choice, or where it accepts."""
    table = dfa.table
    only = np.where(table.delta[:, table.byte_class] != DEAD, np.arange(256), -1).max(axis=1)
    byte = np.where((dfa.num_edges == 1) & ~table.accepting, only[table.row_of], -1)
    return byte.astype(np.int32)
