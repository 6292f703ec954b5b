"""Ragged batches for device tests, and attention in numpy to compare with.

Builds `Layout`s by hand from a list of extends, independently of the engine's packing.
"""

from dataclasses import dataclass

import numpy as np

from sgjax.kernels.batch import Layout, no_runs


@dataclass(frozen=True)
class Extend:
    """Compute tokens [start, end) of a sequence whose pages are given."""

    pages: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Packed:
    """A layout, and for each extend the indices in T where its tokens are."""

    layout: Layout
    places: list[np.ndarray]


def pack(
    extends: list[Extend],
    page_size: int,
    num_decode: int,
    num_blocks: int,
    block_size: int,
    num_pages: int,
) -> Packed:
    """Lay out extends in D decode rows (one token each), then G blocks of BQ tokens."""
    D, G, BQ, S = num_decode, num_blocks, block_size, page_size
    T, B = D + G * BQ, D + G
    positions = np.zeros(T, np.int32)
    out_slots = np.zeros(T, np.int32)
    kv_lens = np.zeros(B, np.int32)
    table = np.zeros((B, num_pages), np.int32)
    block_row = np.full(G, D, np.int32)
    block_start = np.zeros(G, np.int32)
    block_len = np.zeros(G, np.int32)
    places = []
    decodes, blocks, rows = 0, 0, D
    for e in extends:
        pages = np.array(e.pages, np.int32)
        if e.end - e.start == 1 and decodes < D:
            row, at = decodes, np.array([decodes])
            decodes += 1
        else:
            row, at = rows, []
            rows += 1
            for start in range(e.start, e.end, BQ):
                n = min(BQ, e.end - start)
                block_row[blocks], block_start[blocks], block_len[blocks] = row, start, n
                at.extend(D + blocks * BQ + np.arange(n))
                blocks += 1
            at = np.array(at)
        kv_lens[row] = e.end
        table[row, : len(pages)] = pages
        index = np.arange(e.start, e.end)
        positions[at] = index
        out_slots[at] = pages[index // S] * S + index % S
        places.append(at)
    assert max(decodes - D, blocks - G) <= 0, "the extends do not fit D and G"
    layout = Layout(
        positions=positions,
        out_slots=out_slots,
        kv_lens=kv_lens,
        page_table=table,
        block_row=block_row,
        block_start=block_start,
        block_len=block_len,
        shared=no_runs(T, B),
    )
    return Packed(layout, places)


def dense_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, start: int) -> np.ndarray:
    """Attend causally from q[n, H, D] at positions start.. to k, v [m, K, D]; float64."""
    n, H, D = q.shape
    K = k.shape[1]
    out = np.zeros((n, H, D))
    for i in range(n):
        for h in range(H):
            seen = slice(0, start + i + 1)
            scores = k[seen, h // (H // K)].astype(np.float64) @ q[i, h] / np.sqrt(D)
            weights = np.exp(scores - scores.max())
            out[i, h] = (weights / weights.sum()) @ v[seen, h // (H // K)]
    return out
