"""Belady's rule on a prefix tree: the best eviction for requests served in a given order.

Imports theory.visits and the standard library. All pages cost the same, and a page's next use is
never later than that of the pages below it. So evicting the page whose next use is furthest (the
deepest among equals) always finds a leaf, and Belady's exchange argument holds as it does for plain
paging. `theory.exact` agrees on small instances (tests).
"""

import heapq
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from sgjax.errors import PromptTooLong
from sgjax.theory.visits import Path, Visit, paths

NEVER = 1 << 62


def belady_computed(visits: Iterable[Visit], page_size: int, num_pages: int) -> int:
    """Return the fewest prompt tokens any eviction computes, serving the requests as given.

    Args:
        visits: the requests in the order in which they are served, one at a time.
        page_size: S.
        num_pages: capacity of the pool, for the running request and the cache together.

    Returns:
        Prompt tokens to compute. Eviction during service in parallel can only do worse, because
        the running requests then hold more of the pool.

    Raises:
        PromptTooLong: a request does not fit into the pool by itself.
    """
    requests = paths(visits, page_size)
    hits = sum(belady_hits(requests, num_pages))
    return sum(request.prompt_tokens for request in requests) - page_size * hits


def belady_hits(requests: Sequence[Path], num_pages: int) -> list[int]:
    """Return the pages each request hits under the furthest-next-use rule."""
    trails = _number(requests)
    uses: dict[int, list[int]] = defaultdict(list)  # matchable uses of each page, latest first
    for at in range(len(requests) - 1, -1, -1):
        for page in trails[at][: requests[at].matchable]:
            uses[page].append(at)
    kept: dict[int, int] = {}  # page -> its next use, as the heap should have it
    heap: list[tuple[int, int]] = []  # (-next use, -page): among equals the deepest goes first
    hits = []
    for at, request in enumerate(requests):
        if request.held > num_pages:
            raise PromptTooLong(f"request {at} holds {request.held} pages, the pool {num_pages}")
        trail = trails[at]
        found = 0
        while found < request.matchable and trail[found] in kept:
            found += 1
        hits.append(found)
        for page in trail[: request.matchable]:
            uses[page].pop()
        own = set(trail)
        room = num_pages - request.held
        others = len(kept) - sum(page in kept for page in own)
        while others > room:
            following, page = (-item for item in heapq.heappop(heap))
            if page not in own and kept.get(page) == following:
                del kept[page]
                others -= 1
        for page in trail:
            kept[page] = uses[page][-1] if uses[page] else NEVER
            heapq.heappush(heap, (-kept[page], -page))
    return hits


def _number(requests: Sequence[Path]) -> list[list[int]]:
    """Return each request's pages as nodes of the common tree; a child's number is larger."""
    ids: dict[tuple[int, Hashable], int] = {}
    trails = []
    for request in requests:
        node, trail = -1, []
        for page in request.pages:
            node = ids.setdefault((node, page), len(ids))
            trail.append(node)
        trails.append(trail)
    return trails
