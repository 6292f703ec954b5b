"""The optimal hit rate of a finite cache, exactly, for a few small requests.

Imports theory.visits and the standard library. Requests are served one at a time; between two of
them the cache may drop any leaves. The search goes over (who is served, what is kept), so it is
exponential: about eight requests of about eight pages.
"""

from collections.abc import Iterable, Iterator, Sequence

from sgjax.errors import PromptTooLong
from sgjax.theory.visits import Page, Path, Visit, paths

Prefix = tuple[Page, ...]
Kept = frozenset[Prefix]


def least_computed(
    visits: Iterable[Visit], page_size: int, num_pages: int, in_order: bool = False
) -> int:
    """Return the fewest prompt tokens that a cache of this size must compute.

    Args:
        visits: the requests.
        page_size: S.
        num_pages: capacity of the pool, for the running request and the cache together.
        in_order: serve them as given and optimise eviction alone; else the best order, too.

    Raises:
        PromptTooLong: a request does not fit into the pool by itself.
    """
    requests = paths(visits, page_size)
    for request in requests:
        if request.held > num_pages:
            raise PromptTooLong(f"a request holds {request.held} pages, the pool {num_pages}")
    # All ways to have served some of the requests, and the most pages hit in each.
    states: dict[tuple[frozenset[int], Kept], int] = {(frozenset(), frozenset()): 0}
    for step in range(len(requests)):
        reached: dict[tuple[frozenset[int], Kept], int] = {}
        for (served, kept), hits in states.items():
            choices = [step] if in_order else set(range(len(requests))) - served
            for choice in choices:
                now_served = served | {choice}
                rest = [r for i, r in enumerate(requests) if i not in now_served]
                total = hits + _hits(requests[choice], kept)
                for after in _serve(requests[choice], kept, rest, num_pages):
                    state = (now_served, after)
                    reached[state] = max(total, reached.get(state, 0))
        states = reached
    best = max(states.values(), default=0)
    return sum(request.prompt_tokens for request in requests) - page_size * best


def _hits(request: Path, kept: Kept) -> int:
    """Return the pages that a request finds in the cache."""
    hits = 0
    while hits < request.matchable and request.pages[: hits + 1] in kept:
        hits += 1
    return hits


def _serve(request: Path, kept: Kept, rest: Sequence[Path], num_pages: int) -> Iterator[Kept]:
    """Yield what the cache may hold after a request: all maximal choices that still matter."""
    own = {request.pages[: i + 1] for i in range(len(request.pages))}
    wanted = {r.pages[: i + 1] for r in rest for i in range(r.matchable)}
    others = frozenset((kept - own) & wanted)
    for left in _shrink(others, num_pages - request.held):
        yield left | (own & wanted)


def _shrink(kept: Kept, size: int) -> set[Kept]:
    """Return all ways to drop leaves until at most `size` pages are left."""
    ways = {kept}
    for _ in range(len(kept) - size):
        ways = {way - {leaf} for way in ways for leaf in _leaves(way)}
    return ways


def _leaves(kept: Kept) -> list[Prefix]:
    parents = {prefix[:-1] for prefix in kept}
    return [prefix for prefix in kept if prefix not in parents]
