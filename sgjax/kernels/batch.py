"""The device's view of one step: `Batch` and `KVCache`, pytrees whose structure never varies.

DEVICE. Imports jax and flax. Shape letters: D single-token rows, G query blocks of BQ tokens,
T = D + G * BQ packed tokens, B = D + G sequences at most (row b < D is a decode row, rows from D on
are extending sequences, one or more blocks each), P pages per sequence, S page size, X extra
logit rows for prompt log-probabilities, R = B + X logit rows, Q sparse logit adjustments a row,
U mask-table rows, V vocabulary, K kv heads, H query heads, L layers, I shared runs of at most W
queries.

Padding: padded tokens write to the scratch page 0, padded rows have kv_len 0, padded blocks have
block_len 0, padded logit rows read token 0.
"""

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray


def run_queries(num_tokens: int) -> int:
    """Return W for T tokens: most queries that attend to a shared run of pages together.

    Large steps hold extends, which bring many queries each; their tiles are larger, so that keys
    are read less often.
    """
    return 128 if num_tokens >= 512 else 32


@flax.struct.dataclass
class SharedRuns:
    """Runs of pages that several sequences share, each to be attended once for all its queries.

    `kv_lens` and `page_table` alone say what is attended, runs only say how to do it faster: attend
    from the tokens of each run to the run's positions, from every token to the rest of its context
    from `own_start` on, and merge the partial softmaxes, which is exact. Their number is fixed by
    T, so that sharing is data and never another program; unused runs are empty.

    Attributes:
        tokens: i32[I, W] indices into T of the queries of a run, padding is T; the first one's
            sequence gives the pages, which are the same for all.
        start, end: i32[I] positions of the run; start == end where it is unused.
        own_start: i32[B] positions of each sequence below it are covered by runs, for all of its
            new tokens, exactly once each.
    """

    tokens: jax.Array
    start: jax.Array
    end: jax.Array
    own_start: jax.Array


def num_runs(num_tokens: int) -> int:
    """Return I for T tokens: two for each W, which two levels of a tree can need."""
    return 2 + 2 * num_tokens // run_queries(num_tokens)


def no_runs(num_tokens: int, num_rows: int) -> SharedRuns:
    """Return host arrays for T tokens and B sequences that share nothing."""
    I = num_runs(num_tokens)  # noqa: E741 - the shape letter
    arrays: list[NDArray[np.int32]] = [
        np.full((I, run_queries(num_tokens)), num_tokens, np.int32),
        np.zeros(I, np.int32),
        np.zeros(I, np.int32),
        np.zeros(num_rows, np.int32),
    ]
    return SharedRuns(*arrays)  # type: ignore[arg-type] # typed as what jit makes of them


@flax.struct.dataclass
class Layout:
    """Which tokens belong to which sequence, and where their K/V live.

    Attributes:
        positions: i32[T] position of each token in its sequence.
        out_slots: i32[T] slot (page * S + offset) each token's K/V is written to.
        kv_lens: i32[B] tokens of each sequence after this step's writes; 0 for padding.
        page_table: i32[B, P] page ids of each sequence; padding is page 0.
        block_row: i32[G] the sequence (index into B) each query block belongs to.
        block_start: i32[G] position in its sequence of the block's first token.
        block_len: i32[G] tokens in the block, <= BQ; block g holds tokens D + g * BQ + [0, len).
        shared: runs of pages that several sequences share.
    """

    positions: jax.Array
    out_slots: jax.Array
    kv_lens: jax.Array
    page_table: jax.Array
    block_row: jax.Array
    block_start: jax.Array
    block_len: jax.Array
    shared: SharedRuns

    @property
    def used(self) -> jax.Array:
        """Return bool[T]: which tokens are no padding."""
        decodes = self.kv_lens[: self.num_decode] > 0
        if not self.num_blocks:
            return decodes
        blocks = jnp.arange(self.block_size) < self.block_len[:, None]
        return jnp.concatenate([decodes, blocks.reshape(-1)])

    @property
    def num_blocks(self) -> int:
        """Return G."""
        return int(self.block_row.shape[0])

    @property
    def num_decode(self) -> int:
        """Return D."""
        return int(self.kv_lens.shape[0]) - self.num_blocks

    @property
    def block_size(self) -> int:
        """Return BQ (1 where there are no blocks)."""
        T, D, G = int(self.positions.shape[0]), self.num_decode, self.num_blocks
        return (T - D) // G if G else 1


@flax.struct.dataclass
class Sampling:
    """How each row samples; all fields are data, so mixing options never recompiles.

    Rows of nobody's may sample, too: behind the guesses of a sequence that has a row of its own.

    Attributes:
        temperature: f32[B]; 0 is greedy.
        top_k: i32[B]; V keeps all.
        top_p: f32[B]; 1 keeps all.
        min_p: f32[B]; 0 keeps all.
        seed: u32[B] the sample's seed.
        position: i32[B] index in its sequence of the token to be sampled; 0 where none is.
        adjust_ids: i32[B, Q] ids whose logits are adjusted; padding is id 0 with (x1, +0).
        adjust_mul: f32[B, Q] repetition penalty: positive logits are divided, negative multiplied.
        adjust_add: f32[B, Q] added after that: frequency and presence penalties, bias, -inf.
        mask_row: i32[B] row of the mask table; 0 allows everything.
        wants_logprob: bool[B] whether the sampled id's log-probability is wanted; where no row
            wants one, none is computed.
    """

    temperature: jax.Array
    top_k: jax.Array
    top_p: jax.Array
    min_p: jax.Array
    seed: jax.Array
    position: jax.Array
    adjust_ids: jax.Array
    adjust_mul: jax.Array
    adjust_add: jax.Array
    mask_row: jax.Array
    wants_logprob: jax.Array


@flax.struct.dataclass
class Batch:
    """One step: new tokens of some sequences, and what is wanted back.

    Attributes:
        tokens: i32[T] token ids.
        layout: where they belong.
        logit_rows: i32[R] indices into T whose logits are computed; the first B are sampled as
            `sampling` says, the X others yield prompt log-probabilities.
        targets: i32[R] ids whose log-probability is wanted at that row; ignored for the first B,
            whose target is the sampled id.
        sampling: how the first B are sampled.
    """

    tokens: jax.Array
    layout: Layout
    logit_rows: jax.Array
    targets: jax.Array
    sampling: Sampling


@flax.struct.dataclass
class KVCache:
    """All K/V of one device: per-layer leaves, so that XLA updates each in place.

    On CPU 16-bit K/V are stored as uint16 and bitcast, because XLA's CPU scatter of bfloat16
    copies the pool through float32.

    Attributes:
        k: L arrays [N * S, width], a row for each slot; see `storage.row_width`.
        v: L arrays [N * S, width].
    """

    k: tuple[jax.Array, ...]
    v: tuple[jax.Array, ...]
