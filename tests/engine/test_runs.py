"""Shared runs: the planner on random trees, and cascade attention against plain attention."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgjax as sgl
from sgjax.engine.runs import Member, plan_runs
from sgjax.errors import ConfigError
from sgjax.kernels import native
from sgjax.kernels.batch import run_queries
from sgjax.kernels.cpu import CpuAttention
from sgjax.kernels.pallas_gpu import PallasGpuAttention
from sgjax.kernels.reference import ReferenceAttention
from tests.engine.rule8 import check_same_text, make_prompts, make_reference
from tests.kernels.ragged import Extend, pack
from tests.kernels.test_attention import BQ, D, G, compiled

S = 4
LIMIT = 64
"""Tokens of the longest sequence."""


@dataclasses.dataclass(frozen=True)
class Node:
    """A tree node as the planner sees it, and the pages from the root to its end."""

    id: int
    num_tokens: int
    pages: tuple[int, ...]


@st.composite
def trees(draw):
    """Sequences that hang on a random tree: (extend, path) each, all in distinct own pages."""
    fresh = iter(range(1, 500))

    def grow(base, count):
        return base + tuple(next(fresh) for _ in range(count))

    paths = [()]
    for number in range(draw(st.integers(0, 6))):
        above = draw(st.sampled_from(paths))
        base = above[-1].pages if above else ()
        room = LIMIT // S - 2 - len(base)
        if room > 0:
            pages = grow(base, draw(st.integers(1, min(room, 5))))
            paths.append((*above, Node(number, len(pages) * S, pages)))
    decodes, blocks = draw(st.integers(0, D)), draw(st.integers(0, G))
    rows = []
    for longest in [1] * decodes + [BQ] * blocks:
        path = draw(st.sampled_from(paths))
        shared = path[-1].pages if path else ()
        new = draw(st.integers(1 if longest == 1 else 2, longest))
        start = len(shared) * S + draw(st.integers(0, LIMIT - new - len(shared) * S))
        pages = grow(shared, -(-(start + new) // S) - len(shared))
        rows.append((Extend(pages, start, start + new), path))
    return rows


def planned(rows, min_tokens):
    packed = pack([extend for extend, _ in rows], S, D, G, BQ, LIMIT // S)
    layout = packed.layout
    members = []
    for (extend, path), at in zip(rows, packed.places, strict=True):
        b = at[0] if at[0] < D else int(layout.block_row[(at[0] - D) // BQ])
        if path:
            members.append(Member(int(b), int(at[0]), extend.end - extend.start, path))
    runs = plan_runs(members, D + G * BQ, D + G, min_tokens)
    return packed, dataclasses.replace(layout, shared=runs)


@settings(max_examples=100, deadline=None)
@given(rows=trees(), min_tokens=st.sampled_from([1, 8]))
def test_runs_and_own_parts_cover_every_context_exactly_once(rows, min_tokens):
    packed, layout = planned(rows, min_tokens)
    runs = layout.shared
    for (extend, _), at in zip(rows, packed.places, strict=True):
        b = at[0] if at[0] < D else layout.block_row[(at[0] - D) // BQ]
        for token in at:
            covered = np.zeros(extend.end, int)
            covered[runs.own_start[b] :] += 1
            for i in np.flatnonzero((runs.tokens == token).any(axis=1)):
                assert runs.end[i] <= extend.start
                assert runs.end[i] - runs.start[i] >= min_tokens
                covered[runs.start[i] : runs.end[i]] += 1
            assert (covered == 1).all()


@settings(max_examples=50, deadline=None)
@given(rows=trees())
def test_the_members_of_a_run_hold_the_same_pages(rows):
    packed, layout = planned(rows, 1)
    owner = {int(t): e for (e, _), at in zip(rows, packed.places, strict=True) for t in at}
    runs = layout.shared
    for i in np.flatnonzero(runs.end > runs.start):
        pages = slice(runs.start[i] // S, runs.end[i] // S)
        held = {owner[int(t)].pages[pages] for t in runs.tokens[i] if t < D + G * BQ}
        assert len(held) == 1


def member(row, *path):
    return Member(row, row, 1, path)


def test_levels_of_runs_follow_the_tree():
    top, left = Node(1, 1500, ()), Node(2, 1700, ())
    members = [member(0, top, left), member(1, top, left), member(2, top)]
    runs = plan_runs(members, 4, 4, 64)
    assert list(zip(runs.start, runs.end, strict=True)) == [(0, 1500), (1500, 1700)]
    assert runs.tokens[:, :4].tolist() == [[0, 1, 2, 4], [0, 1, 4, 4]]
    assert runs.own_start.tolist() == [1700, 1700, 1500, 0]


def test_a_run_too_short_is_left_to_the_runs_below_it():
    top, left = Node(1, 10, ()), Node(2, 100, ())
    members = [member(0, top, left), member(1, top, left), member(2, top)]
    runs = plan_runs(members, 4, 4, 64)
    assert (runs.start[0], runs.end[0], runs.end[1]) == (0, 100, 0)
    assert runs.own_start.tolist() == [100, 100, 0, 0]


def test_a_run_of_too_few_queries_is_left_to_the_sequences():
    top, left = Node(1, 100, ()), Node(2, 200, ())
    members = [member(b, top, left) for b in range(3)] + [member(3, top)]
    runs = plan_runs(members, 4, 4, 64, min_queries=4)
    assert [(s, e) for s, e in zip(runs.start, runs.end, strict=True) if e] == [(0, 100)]
    assert runs.own_start.tolist() == [100] * 4


def test_many_members_are_cut_into_tiles():
    top = Node(1, 100, ())
    runs = plan_runs([member(b, top) for b in range(40)], 64, 64, 64)
    assert (runs.tokens < 64).sum(axis=1).tolist()[:3] == [run_queries(64), 8, 0]


def test_runs_that_do_not_fit_the_arrays_stay_with_the_sequences():
    pairs = [Node(n, 100, ()) for n in range(8)]
    members = [member(b, pairs[b // 2]) for b in range(16)]
    runs = plan_runs(members, 16, 16, 64)
    assert (runs.end > 0).all()
    assert (runs.own_start > 0).sum() == 2 * len(runs.end)


def cascades():
    yield ReferenceAttention(S)
    yield CpuAttention(S, chunk=16)
    yield PallasGpuAttention(S, chunk=16, tile_rows=8, splits=2, interpret=True)
    if native.find_compiler():
        from sgjax.kernels.cpu_native import cpu_native_attention

        yield cpu_native_attention(S)


@settings(max_examples=40, deadline=None)
@given(rows=trees(), seed=st.integers(0, 3))
def test_cascade_attention_equals_plain_attention_on_random_trees(rows, seed):
    packed, layout = planned(rows, 1)
    rng = np.random.default_rng(seed)
    k_pool = rng.standard_normal((500 * S, 32), np.float32)
    v_pool = rng.standard_normal((500 * S, 32), np.float32)
    q, k, v = (rng.standard_normal((D + G * BQ, h, 16), np.float32) for h in (6, 2, 2))
    for attention in cascades():
        run = compiled(attention)
        plain, *_ = run(q, k, v, k_pool, v_pool, packed.layout)
        got, *_ = run(q, k, v, k_pool, v_pool, layout)
        np.testing.assert_allclose(got, plain, rtol=1e-5, atol=1e-5)


MODEL = {"model": "random:tiny", "dtype": "float32", "max_context_len": 256, "max_running": 8}


def test_the_reference_says_the_same_with_a_shared_prefix_attended_once():
    common = list(range(3, 43))
    said = []
    for shared_prefix in ({"type": "none"}, {"type": "cascade", "min_tokens": 16}):
        with sgl.Engine(**MODEL, attention="reference", shared_prefix=shared_prefix) as engine:
            engine.generate(input_ids=common, sampling_params={"max_new_tokens": 1})
            results = engine.generate(
                input_ids=[[*common, 50 + i] for i in range(4)],
                sampling_params={"max_new_tokens": 8, "temperature": 0},
            )
            assert (
                engine.get_server_info()["config"]["shared_prefix"].items() >= shared_prefix.items()
            )
        assert [r["meta_info"]["cached_tokens"] for r in results] == [len(common)] * 4
        said.append([r["output_ids"] for r in results])
    assert said[0] == said[1]


@pytest.mark.skipif(not native.find_compiler(), reason="no C++ compiler")
def test_text_is_the_same_with_shared_prefixes_attended_once():
    prompts = make_prompts(vocab=250, seed=5, lengths=(40, 20))
    config = {**MODEL, "attention": "cpu_native", "kv_tokens": 1600, "token_budget": 256}
    reference = make_reference(prompts, new=16, **config)
    info = check_same_text(
        reference,
        **config,
        siblings={"type": "share_planned"},  # whose writers must not read ahead
        shared_prefix={"type": "cascade", "min_tokens": 4},
    )
    asked = {"type": "cascade", "min_tokens": 4, "min_queries": 2}
    assert info["config"]["shared_prefix"] == asked


def test_shared_prefix_is_what_is_asked_for_or_what_pays_for_the_backend():
    with sgl.Engine(**MODEL, attention="reference") as engine:
        assert engine.get_server_info()["config"]["shared_prefix"] == {"type": "none"}
    with sgl.Engine(**MODEL, attention="cpu", shared_prefix={"type": "none"}) as engine:
        assert engine.get_server_info()["config"]["shared_prefix"] == {"type": "none"}
    with sgl.Engine(**MODEL, attention="cpu") as engine:
        # XLA computes whole tiles of queries: a few sequences are faster by themselves.
        assert engine.get_server_info()["config"]["shared_prefix"]["min_queries"] == 8
    with pytest.raises(ConfigError, match="min_tokens=0"):
        sgl.Engine(**MODEL, shared_prefix={"type": "cascade", "min_tokens": 0})


def test_a_long_run_is_attended_in_pieces_and_gives_the_same():
    shared = tuple(range(1, 301))  # 1,200 tokens, more than the native backend takes in one task
    rows = [Extend((*shared, 301 + i), 1200, 1201) for i in range(3)]
    packed = pack(rows, S, D, G, BQ, 301)
    top = Node(1, 1200, shared)
    runs = plan_runs([member(i, top) for i in range(3)], D + G * BQ, D + G, 64)
    layout = dataclasses.replace(packed.layout, shared=runs)
    assert runs.own_start[:3].tolist() == [1200] * 3
    rng = np.random.default_rng(0)
    pools = [rng.standard_normal((310 * S, 32), np.float32) for _ in "kv"]
    q, k, v = (rng.standard_normal((D + G * BQ, h, 16), np.float32) for h in (6, 2, 2))
    for attention in cascades():
        plain, *_ = compiled(attention)(q, k, v, *pools, packed.layout)
        got, *_ = compiled(attention)(q, k, v, *pools, layout)
        np.testing.assert_allclose(got, plain, rtol=1e-5, atol=1e-5)
