"""MaskTable: the masks of grammars on the device, as much of them as is in use.

DEVICE. Imports jax, schedule and fsm's Grammar. Row 0 of the table allows everything. The rest is
cut into blocks of rows; a block holds a run of one grammar's rows and is uploaded when a step first
needs one of them, over the block that went unused for longest. What travels with a batch is row
numbers (architecture section 5).
"""

from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sgjax.engine.hosts import Alone, Hosts, WriteMasks
from sgjax.fsm.grammar import Grammar
from sgjax.fsm.kernels import RowStore
from sgjax.schedule import Plan

ALONE = Alone()
BLOCK_ROWS = 16
_MAX_BLOCKS = 1024


class MaskTable:
    """Hold masks u32[U, W] on the device.

    Args:
        num_words: W.
        table_bytes: size of the table; it has one block for every row of a step at least.
        max_rows: samples in a step at most.
        sharding: where the table lies; None is the default device.
        hosts: that hold the same table.
    """

    def __init__(
        self,
        num_words: int,
        table_bytes: int,
        max_rows: int,
        sharding: jax.sharding.Sharding | None = None,
        hosts: Hosts = ALONE,
    ) -> None:
        block_bytes = BLOCK_ROWS * num_words * 4
        blocks = max(max_rows, min(table_bytes // block_bytes, _MAX_BLOCKS))
        self._num_words = num_words
        # Block 0 holds row 0; numpy first, because a constant would be kept by the compiler too.
        self.array: Any = jax.device_put(
            np.full(((1 + blocks) * BLOCK_ROWS, num_words), 0xFFFFFFFF, np.uint32), sharding
        )
        self._free = list(range(blocks, 0, -1))
        # (a grammar's rows, block of them) -> (block of the table, rows uploaded), oldest first.
        self._resident: OrderedDict[tuple[RowStore, int], tuple[int, int]] = OrderedDict()
        self._write = jax.jit(_write, donate_argnums=(0,))
        self._hosts = hosts
        self.uploads = 0

    def write(self, rows: NDArray[np.uint32], at: int) -> None:
        """Put rows u32[n, W] into the table from row `at` on."""
        self.array = self._write(self.array, rows, np.int32(at))

    def rows(self, plan: Plan) -> dict[int, int]:
        """Return the table row of each constrained sample of a plan; upload what is missing."""
        sampled = (seq for row in plan.rows for seq in row.sampled)
        return {
            index: self._locate(seq.grammar, seq.grammar_state)
            for index, seq in enumerate(sampled)
            if seq.grammar is not None
        }

    def _locate(self, grammar: Grammar, state: int) -> int:
        row = grammar.mask_row(state)  # first: it may begin another store
        key = (grammar.store, row // BLOCK_ROWS)
        found = self._resident.get(key)
        if found is None or row % BLOCK_ROWS >= found[1]:
            found = self._upload(key, found[0] if found else None)
        # Blocks of one step are the most recent ones, and there are enough blocks for a step.
        self._resident.move_to_end(key)
        return found[0] * BLOCK_ROWS + row % BLOCK_ROWS

    def _upload(self, key: tuple[RowStore, int], block: int | None) -> tuple[int, int]:
        if block is None:
            block = self._free.pop() if self._free else self._resident.popitem(last=False)[1][0]
        store, number = key
        rows = store.rows[number * BLOCK_ROWS : (number + 1) * BLOCK_ROWS]
        data = np.zeros((BLOCK_ROWS, self._num_words), np.uint32)
        data[: len(rows)] = rows
        self._hosts.tell(WriteMasks(data, block * BLOCK_ROWS))
        self.write(data, block * BLOCK_ROWS)
        self._resident[key] = (block, len(rows))
        self.uploads += 1
        return block, len(rows)


def _write(table: jax.Array, block: jax.Array, at: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_slice(table, block, (at, jnp.int32(0)))
