"""Plan shared runs: which pages of the prefix tree a step attends once for several sequences.

Makes no arrays of jax. Imports cache's nodes, the plan and kernels.batch. What a backend does with
the runs is written there (`SharedRuns`); attention over disjoint ranges merges exactly, so a run
changes time, never the result.

Example, each letter a tree node and its tokens, three decodes that end below them:

    A 1,500 -+- B 200 -+- x        runs  A for x, y, z: [0, 1500)
             |         +- y              B for x, y:    [1500, 1700)
             +- z                  own_start  x, y: 1700   z: 1500
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgjax.cache.base import CacheNode
from sgjax.kernels.batch import SharedRuns, no_runs, run_queries
from sgjax.schedule import Plan


@dataclass(frozen=True)
class Member:
    """A sequence of a step that may join runs.

    Attributes:
        row: b, its row in the batch.
        first, count: its new tokens in T.
        path: the tree nodes it hangs on, root first; all end at or before its first new token.
    """

    row: int
    first: int
    count: int
    path: tuple[CacheNode, ...]


def members_of(plan: Plan, slots: list[int], firsts: list[int], num_tokens: int) -> list[Member]:
    """Return the rows of a plan that may join runs.

    Args:
        plan: the step.
        slots: each plan row's b.
        firsts: index in T of each plan row's first token.
        num_tokens: T.
    """
    members = []
    for row, b, first in zip(plan.rows, slots, firsts, strict=True):
        # An extend that fills a tile of queries by itself gains nothing.
        if row.num_tokens > run_queries(num_tokens):
            continue
        path = []
        node = row.seq.node
        while node is not None:
            # Planned pages (siblings: share_planned) may lie ahead of what this row may see.
            if 0 < node.num_tokens <= row.start:
                path.append(node)
            node = node.parent
        if path:
            members.append(Member(b, first, row.num_tokens, tuple(reversed(path))))
    return members


def plan_runs(
    members: list[Member], num_tokens: int, num_rows: int, min_tokens: int, min_queries: int = 2
) -> SharedRuns:
    """Return the runs that pay.

    Levels follow the tree from the top: whatever all members of a group have in common is one run,
    then each branch is a group of its own. A run shorter than `min_tokens`, one of fewer than
    `min_queries`, or one that no longer fits into the arrays, is not made; the runs below it then
    begin where it would have.

    Args:
        members: sequences that may join.
        num_tokens: T.
        num_rows: B.
        min_tokens: of a run.
        min_queries: new tokens that a run must serve.
    """
    runs: Any = no_runs(num_tokens, num_rows)  # filled here, in numpy
    used, tile = 0, runs.tokens.shape[1]
    groups = [(members, 0, 0)]  # members, depth in their paths, position covered so far
    while groups:
        group, depth, covered = groups.pop()
        if len(group) < 2:
            _settle(runs, group, covered)
            continue
        while all(len(m.path) > depth for m in group) and _one(m.path[depth].id for m in group):
            depth += 1
        end = group[0].path[depth - 1].num_tokens if depth else 0
        tokens = np.concatenate([np.arange(m.first, m.first + m.count) for m in group])
        tiles = -(-len(tokens) // tile)
        pays = end - covered >= min_tokens and len(tokens) >= min_queries
        if pays and used + tiles <= len(runs.start):
            padded = np.full(tiles * tile, num_tokens)
            padded[: len(tokens)] = tokens
            here = slice(used, used + tiles)
            runs.tokens[here] = padded.reshape(tiles, tile)
            runs.start[here], runs.end[here] = covered, end
            used, covered = used + tiles, end
        branches: dict[int, list[Member]] = {}
        for member in group:
            if len(member.path) > depth:
                branches.setdefault(member.path[depth].id, []).append(member)
            else:
                _settle(runs, [member], covered)
        groups += [(branch, depth, covered) for branch in branches.values()]
    planned: SharedRuns = runs
    return planned


def _settle(runs: Any, members: list[Member], covered: int) -> None:
    for member in members:
        runs.own_start[member.row] = covered


def _one(ids: Iterable[int]) -> bool:
    return len(set(ids)) == 1
