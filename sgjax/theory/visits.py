"""Visits: what the theory knows of a request, and how it looks in whole pages.

Imports the standard library only. A prefix cache works in pages of S tokens, so everything that is
proven about it is proven about *page paths*; with S = 1 a page is a token, as in the paper.

Of a request with n prompt and m output tokens (the last output token's K/V is never computed)::

    pages     [0 ...... matchable) [matchable ............ (n + m - 1) // S)
               may come from the    are computed by the request whatever the cache holds, because a
               cache                match ends before the last prompt token; they enter the tree
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TokenIds = Sequence[int]
Page = tuple[int, ...]


@dataclass(frozen=True)
class Visit:
    """One request.

    Attributes:
        prompt: token ids, at least one.
        output: the generated ids, where they are known; empty where none were asked for.
    """

    prompt: tuple[int, ...]
    output: tuple[int, ...] = ()


@dataclass(frozen=True)
class Path:
    """A request in whole pages.

    Attributes:
        pages: the full pages that the request leaves in the tree, from the root.
        matchable: how many of them, from the front, it could take from the cache.
        held: pages it occupies at its end, the last partial one included.
        prompt_tokens: length of the prompt in tokens.
    """

    pages: tuple[Page, ...]
    matchable: int
    held: int
    prompt_tokens: int


def paths(visits: Iterable[Visit], page_size: int = 1) -> list[Path]:
    """Return the visits in pages of `page_size` tokens."""
    return [_path(visit, page_size) for visit in visits]


def _path(visit: Visit, size: int) -> Path:
    tokens = visit.prompt + visit.output[:-1]
    full = len(tokens) // size
    pages = tuple(tokens[i * size : (i + 1) * size] for i in range(full))
    length = len(visit.prompt)
    return Path(pages, (length - 1) // size, -(-len(tokens) // size), length)


def common_prefix(a: Sequence[object], b: Sequence[object]) -> int:
    """Return the number of leading items in which `a` and `b` agree."""
    length = min(len(a), len(b))
    for i in range(length):
        if a[i] != b[i]:
            return i
    return length
