"""Templates: the states inside a character that one kind of character state needs.

HOST. Imports numpy and charset. Of a state it counts which intervals of characters lead to the same
place, not where: so a template is built once, and its leaves are filled in for each state.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sgjax.fsm.charset import MAX_CODE_POINT


@dataclass(frozen=True)
class TemplateNode:
    """A state inside a character, its targets left open.

    Attributes:
        choice: u8[128] for each byte from 0x80 on: 0 is dead, i + 1 the i-th of its targets.
        targets: codes of its targets: leaf i is -1 - i, node j of the template is j.
    """

    choice: NDArray[np.uint8]
    targets: tuple[int, ...]


def build_template(starts: list[int], leaves: list[int]) -> list[TemplateNode]:
    """Build the inner states for a map from intervals of characters to leaves.

    Args:
        starts: first code points of the intervals.
        leaves: leaf of each interval, -1 for none.

    Returns:
        The nodes, targets before who leads to them; the last one is the root.
    """
    return _Builder(starts, leaves).nodes


class _Builder:
    """Nodes by what they lead to; equal ones are one."""

    def __init__(self, starts: list[int], leaves: list[int]) -> None:
        self._starts, self._leaves = [0], [-1]
        for start, leaf in [*zip(starts, leaves, strict=True), (MAX_CODE_POINT + 1, -1)]:
            if leaf != self._leaves[-1]:
                self._starts.append(start)
                self._leaves.append(leaf)
        self.nodes: list[TemplateNode] = []
        self._known: dict[tuple[bytes, tuple[int, ...]], int] = {}
        self._constant: dict[tuple[int, int], int | None] = {}
        root = self._add(self._leads())
        # It is never shared: only roots read lead bytes.
        assert root == len(self.nodes) - 1, "a root stands inside a character"

    def _add(self, codes: Iterable[tuple[int, int | None]]) -> int | None:
        """Add a node from (byte, code of its target); return its number, None if it is dead."""
        choice = np.zeros(128, np.uint8)
        targets: dict[int, int] = {}
        for byte, code in codes:
            if code is not None:
                choice[byte - 0x80] = 1 + targets.setdefault(code, len(targets))
        if not targets:
            return None
        key = (choice.tobytes(), tuple(targets))
        number = self._known.setdefault(key, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(TemplateNode(choice, tuple(targets)))
        return number

    def _leads(self) -> Iterator[tuple[int, int | None]]:
        """Yield the lead bytes, and the codes of what follows them."""
        for byte in range(0xC2, 0xE0):
            yield byte, self._below((byte & 0x1F) << 6, 1)
        for byte in range(0xE0, 0xF0):
            yield byte, self._below_long((byte & 0x0F) << 12, 2, 0x800)
        for byte in range(0xF0, 0xF5):
            yield byte, self._below_long((byte & 0x07) << 18, 3, 0x10000)

    def _below(self, low: int, num_bytes: int) -> int | None:
        """Return the code for the characters from `low` on that `num_bytes` more bytes select."""
        size = 1 << 6 * num_bytes
        at = bisect_right(self._starts, low) - 1
        leaf = self._leaves[at]
        is_constant = at + 1 == len(self._starts) or self._starts[at + 1] >= low + size
        if is_constant and (leaf < 0 or num_bytes == 0):
            return None if leaf < 0 else -1 - leaf
        if is_constant and (num_bytes, leaf) in self._constant:
            return self._constant[num_bytes, leaf]
        part = size >> 6
        code = self._add((0x80 + i, self._below(low + i * part, num_bytes - 1)) for i in range(64))
        if is_constant:
            self._constant[num_bytes, leaf] = code
        return code

    def _below_long(self, low: int, num_bytes: int, least: int) -> int | None:
        """As `_below`, without characters under `least`, which have a shorter form."""
        if low >= least:
            return self._below(low, num_bytes)
        part = 1 << 6 * (num_bytes - 1)
        lows = [low + i * part for i in range(64)]
        return self._add(
            (0x80 + i, self._below(at, num_bytes - 1) if at >= least else None)
            for i, at in enumerate(lows)
        )
