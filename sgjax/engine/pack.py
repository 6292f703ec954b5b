"""pack: from a Plan to one device Batch of one of a few static shapes.

Imports schedule's plan, kernels.batch and numpy. Host arrays only; the executor moves them. Rows
with one new token become decode rows; longer ones are cut into query blocks. A row samples at its
own place; what it samples behind guesses goes to places that no row has. What pads what is written
in kernels.batch.
"""

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgjax.engine.config import CascadeSpec, SharedPrefixSpec
from sgjax.engine.runs import members_of, plan_runs
from sgjax.kernels.batch import Batch, Layout, Sampling, no_runs
from sgjax.schedule import Plan, Sequence
from sgjax.schedule.policies import mix

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Shape:
    """The static shape of one compiled step.

    Attributes:
        D, G, BQ, P: as in kernels.batch.
        X: logit rows for prompt log-probabilities.
        Q: sparse logit adjustments a row.
        top: alternatives reported beside each log-probability.
    """

    D: int
    G: int
    BQ: int
    P: int
    X: int
    Q: int
    top: int

    @property
    def T(self) -> int:  # noqa: N802 - the shape letter
        """Return the packed tokens."""
        return self.D + self.G * self.BQ

    @property
    def B(self) -> int:  # noqa: N802 - the shape letter
        """Return the sequences."""
        return self.D + self.G


@dataclass(frozen=True)
class Ladder:
    """The few sizes every axis may have; each ascending.

    Attributes:
        decode: D of steps without blocks.
        mixed: (D, G, BQ) of steps with blocks, by T.
        pages: P of steps without blocks.
        mixed_pages: P of steps with blocks.
        targets: X.
        adjustments: Q.
        top: K.
    """

    decode: tuple[int, ...]
    mixed: tuple[tuple[int, int, int], ...]
    pages: tuple[int, ...]
    mixed_pages: tuple[int, ...]
    targets: tuple[int, ...]
    adjustments: tuple[int, ...]
    top: tuple[int, ...]

    def fit(self, plan: Plan, num_adjustments: int) -> Shape:
        """Return the smallest shape that holds a plan and its sparse logit adjustments."""
        lengths = [row.num_tokens for row in plan.rows if row.num_tokens > 1]
        singles = len(plan.rows) - len(lengths)
        places = len(plan.rows) + sum(len(row.guesses) for row in plan.rows)
        D, G, BQ = self._fit_tokens(singles, lengths, places)
        return Shape(
            D=D,
            G=G,
            BQ=BQ,
            P=_fit(
                self.mixed_pages if lengths else self.pages,
                max(row.seq.pages.length for row in plan.rows),
            ),
            X=_fit(self.targets, sum(len(row.targets) for row in plan.rows)),
            Q=_fit(self.adjustments, num_adjustments),
            top=_fit(self.top, max(row.seq.request.top_logprobs for row in plan.rows)),
        )

    def warmup_shapes(self) -> list[Shape]:
        """Return the shapes of steps without log-probabilities and adjustments: `warmup: full`."""
        plain = {"X": self.targets[0], "Q": self.adjustments[0], "top": self.top[0]}
        shapes = [Shape(D=D, G=0, BQ=1, P=P, **plain) for P in self.pages for D in self.decode]
        for P in self.mixed_pages:
            shapes += [Shape(D=D, G=G, BQ=BQ, P=P, **plain) for D, G, BQ in self.mixed]
        return shapes

    def _fit_tokens(self, singles: int, lengths: list[int], places: int) -> tuple[int, int, int]:
        if not lengths:
            return _fit(self.decode, singles), 0, 1
        for D, G, BQ in self.mixed:
            if singles <= D and sum(-(-n // BQ) for n in lengths) <= G and places <= D + G:
                return D, G, BQ
        raise AssertionError(f"the scheduler planned more than {self.mixed[-1]}: {lengths}")


@dataclass(frozen=True)
class Adjustments:
    """A row's sparse logit adjustments.

    Attributes:
        ids: i32[Q'] token ids, each once.
        mul: f32[Q'] repetition penalties.
        add: f32[Q'] sums of frequency and presence penalties, bias and -inf.
    """

    ids: Ints
    mul: NDArray[np.float32]
    add: NDArray[np.float32]


def pack(
    plan: Plan,
    ladder: Ladder,
    page_size: int,
    vocab_size: int,
    shared_prefix: SharedPrefixSpec,
    mask_rows: dict[int, int],
) -> tuple[Shape, Batch]:
    """Return the plan as host arrays, and their shape.

    Args:
        plan: single-token rows first.
        ladder: the shapes to choose from.
        page_size: S.
        vocab_size: V; a top_k of V keeps all.
        shared_prefix: whether to plan shared runs.
        mask_rows: rows of the mask table for constrained samples, by index among the plan's.
    """
    sampled = [seq for row in plan.rows for seq in row.sampled]
    adjusted = {index: adjustments(seq) for index, seq in enumerate(sampled) if _is_adjusted(seq)}
    shape = ladder.fit(plan, max((len(a.ids) for a in adjusted.values()), default=0))
    slots, places = row_slots(plan, shape), sample_places(plan, shape)
    layout, tokens, logit_rows, targets = _pack_tokens(plan, slots, places, shape, page_size)
    if isinstance(shared_prefix, CascadeSpec):
        members = members_of(plan, slots, _firsts(plan, slots, shape), shape.T)
        runs = plan_runs(
            members, shape.T, shape.B, shared_prefix.min_tokens, shared_prefix.min_queries
        )
        layout = dataclasses.replace(layout, shared=runs)
    sampling = _pack_sampling(sampled, places, shape, vocab_size, adjusted, mask_rows)
    return shape, Batch(tokens, layout, logit_rows, targets, sampling)


def row_slots(plan: Plan, shape: Shape) -> list[int]:
    """Return the batch row b of each plan row: decode rows from 0, extends from D on."""
    singles = sum(1 for row in plan.rows if row.end - row.start == 1)
    return [*range(singles), *range(shape.D, shape.D + len(plan.rows) - singles)]


def sample_places(plan: Plan, shape: Shape) -> list[int]:
    """Return where in B each sample of a plan is taken: at its row's b, or at one no row has."""
    slots = row_slots(plan, shape)
    spare = itertools.filterfalse(set(slots).__contains__, range(shape.B))
    places = []
    for row, b in zip(plan.rows, slots, strict=True):
        if row.sample:
            places += [b, *itertools.islice(spare, len(row.guesses))]
    return places


def dummy_batch(shape: Shape, vocab_size: int) -> Batch:
    """Return a batch of nothing but padding, for compiling a shape."""
    nothing = Plan(0, (), 0)
    layout, tokens, logit_rows, targets = _pack_tokens(nothing, [], [], shape, 1)
    sampling = _pack_sampling([], [], shape, vocab_size, {}, {})
    return Batch(tokens, layout, logit_rows, targets, sampling)


def _pack_tokens(
    plan: Plan, slots: list[int], places: list[int], shape: Shape, page_size: int
) -> tuple[Layout, Any, Any, Any]:
    """Return layout, tokens, logit rows and targets."""
    D, G, BQ = shape.D, shape.G, shape.BQ
    tokens, positions, out_slots = (_zeros(shape.T) for _ in range(3))
    kv_lens, page_table = _zeros(shape.B), _zeros(shape.B, shape.P)
    block_row, block_start, block_len = (_zeros(G) for _ in range(3))
    logit_rows, targets = (_zeros(shape.B + shape.X) for _ in range(2))
    extra, samples = shape.B, iter(places)
    for row, b, at in zip(plan.rows, slots, _firsts(plan, slots, shape), strict=True):
        seq, start, end = row.seq, row.start, row.end
        n = end - start
        tokens[at : at + n] = row.tokens
        where = np.arange(start, end, dtype=np.int32)
        positions[at : at + n] = where
        pages = seq.pages.view()
        out_slots[at : at + n] = pages[where // page_size] * page_size + where % page_size
        kv_lens[b] = end
        page_table[b, : len(pages)] = pages
        for last in range(at + n - len(row.sampled), at + n):
            logit_rows[next(samples)] = last
        if n > 1:
            for offset in range(0, n, BQ):
                block = (at - D + offset) // BQ
                block_row[block] = b
                block_start[block] = start + offset
                block_len[block] = min(BQ, n - offset)
        for target in row.targets:
            logit_rows[extra] = at + target - 1 - start
            targets[extra] = seq.request.tokens[target]
            extra += 1
    layout = Layout(
        positions, out_slots, kv_lens, page_table, block_row, block_start, block_len,
        no_runs(shape.T, shape.B),
    )  # fmt: skip
    return layout, tokens, logit_rows, targets


def _firsts(plan: Plan, slots: list[int], shape: Shape) -> list[int]:
    """Return the index in T of each plan row's first token."""
    firsts, block = [], 0
    for row, b in zip(plan.rows, slots, strict=True):
        if row.num_tokens == 1:
            firsts.append(b)
        else:
            firsts.append(shape.D + block * shape.BQ)
            block += -(-row.num_tokens // shape.BQ)
    return firsts


def _pack_sampling(
    sampled: list[Sequence],
    places: list[int],
    shape: Shape,
    vocab_size: int,
    adjusted: dict[int, Adjustments],
    mask_rows: dict[int, int],
) -> Sampling:
    B, Q = shape.B, shape.Q
    temperature, top_p, min_p = (_zeros(B, dtype=np.float32) for _ in range(3))
    top_k, position, mask_row = (_zeros(B) for _ in range(3))
    seed = _zeros(B, dtype=np.uint32)
    wants_logprob = _zeros(B, dtype=np.bool_)
    ids, mul, add = _zeros(B, Q), _zeros(B, Q, dtype=np.float32), _zeros(B, Q, dtype=np.float32)
    top_k[:], top_p[:], mul[:] = vocab_size, 1, 1
    for index, (seq, b) in enumerate(zip(sampled, places, strict=True)):
        params = seq.request.params
        position[b] = seq.num_tokens
        mask_row[b] = mask_rows.get(index, 0)
        wants_logprob[b] = seq.request.return_logprob
        if params.temperature > 0:
            temperature[b] = params.temperature
            top_k[b] = vocab_size if params.top_k is None else min(params.top_k, vocab_size)
            top_p[b], min_p[b] = params.top_p, params.min_p
            seed[b] = seq.seed if seq.seed < 2**32 else mix(seq.seed) >> 32
        if index in adjusted:
            own = adjusted[index]
            n = len(own.ids)
            ids[b, :n], mul[b, :n], add[b, :n] = own.ids, own.mul, own.add
    return Sampling(
        temperature, top_k, top_p, min_p, seed, position, ids, mul, add, mask_row, wants_logprob
    )


def adjustments(seq: Sequence) -> Adjustments:
    """Return a sequence's sparse logit adjustments, computed afresh from its tokens.

    No state of them lives on the device, so retraction, rollback and reordering cannot spoil it.
    End ids are forbidden (-inf) before `min_new_tokens`.
    """
    params = seq.request.params
    mul: dict[int, float] = {}
    add: dict[int, float] = dict(params.logit_bias)
    if params.repetition_penalty != 1.0:
        mul = dict.fromkeys(np.unique(seq.tokens.view()).tolist(), params.repetition_penalty)
    if params.frequency_penalty or params.presence_penalty:
        out_ids, counts = np.unique(seq.tokens.view(seq.num_prompt), return_counts=True)
        for token, count in zip(out_ids.tolist(), counts.tolist(), strict=True):
            penalty = params.frequency_penalty * count + params.presence_penalty
            add[token] = add.get(token, 0.0) - penalty
    if seq.num_output < params.min_new_tokens:
        add.update(dict.fromkeys(seq.end_ids, -np.inf))
    ids = sorted(mul.keys() | add.keys())
    return Adjustments(
        np.array(ids, np.int32),
        np.array([mul.get(i, 1.0) for i in ids], np.float32),
        np.array([add.get(i, 0.0) for i in ids], np.float32),
    )


def _zeros(*shape: int, dtype: type[np.generic] = np.int32) -> Any:
    # Any, because the fields of Batch are typed as what jit makes of these arrays.
    return np.zeros(shape, dtype)


def _is_adjusted(seq: Sequence) -> bool:
    p = seq.request.params
    return bool(
        p.logit_bias
        or p.repetition_penalty != 1.0
        or p.frequency_penalty
        or p.presence_penalty
        or seq.num_output < p.min_new_tokens
    )


def _fit(sizes: tuple[int, ...], need: int) -> int:
    for size in sizes:
        if size >= need:
            return size
    raise AssertionError(f"a step needs {need}, but the ladder ends at {sizes[-1]}")
