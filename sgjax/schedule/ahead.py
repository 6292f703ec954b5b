"""Running ahead: many identical decode steps at once, where the scheduler has nothing to decide.

Imports plan, pages, sequence and numpy. For simulations only: an executor that knows its tokens
beforehand can repeat a plan until somebody ends, a page must be evicted or a request comes.
"""

import numpy as np

from sgjax.schedule.pages import PageKeeper
from sgjax.schedule.plan import Plan


def repeats(plan: Plan, pages: PageKeeper, max_context_len: int) -> int:
    """Return how often a plan can run in a row without an end, an eviction or a full context.

    Args:
        plan: as it was planned; its rows are all the running sequences.
        pages: what the rows grow into.
        max_context_len: tokens of a sequence.

    Returns:
        At least 1; 1 also where a row is anything but a decode in the middle of an output that
        only its length can end.
    """
    most = max_context_len
    for seq, start, end, sample, logprob_from, _ in plan.rows:
        request = seq.request
        plain = end - start == 1 and sample and logprob_from < 0 and seq.num_output > 0
        if not plain or seq.end_ids or request.params.stop:
            return 1
        if request.stream or request.return_logprob or request.constraint is not None:
            return 1
        # The step that ends a sequence is an ordinary one.
        most = min(most, seq.max_growth - 1, max_context_len - 1 - seq.num_tokens)
    if most <= 1:
        return 1
    size, free = pages.pool.page_size, pages.pool.num_free
    lengths = np.array([row.seq.num_tokens for row in plan.rows])
    held = np.array([row.seq.pages.length for row in plan.rows])

    def fits(times: int) -> bool:
        return int((-(-(lengths + times - 1) // size) - held).sum()) <= free

    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def append_repeated(plan: Plan, pages: PageKeeper, token: int, times: int) -> None:
    """Append `token` to every row as often as the plan was run; there must be room (`repeats`)."""
    for row in plan.rows:
        seq = row.seq
        seq.num_computed = row.end + times - 1
        seq.tokens.append_many(token, times - 1)
    needy, missing = pages.lacking(row.seq for row in plan.rows)
    pages.grow(needy, missing)
    for row in plan.rows:
        row.seq.tokens.append_many(token, 1)
        assert row.seq.output is not None
        row.seq.output.append_many(token, times)
