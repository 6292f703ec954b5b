"""SamplesCache: prompts shared by those that ask the very same and run together; nothing is kept.

Imports numpy, cache.base and cache.pool. So an engine without reuse between requests serves
parallel samples: in vLLM 0.2.5 the sequences of a group share the pages of their prompt. Here
samples are requests of their own; all but the first compute what of it is no whole page.
"""

from typing import final

import numpy as np

from sgjax.cache.base import (
    CacheEvent,
    CacheNode,
    EventKind,
    InsertReason,
    Keys,
    Listener,
    Match,
    NextUse,
    Pages,
    Place,
    Slot,
    slot_behind,
)
from sgjax.cache.pool import Owner, PagePool


class SharedPrompt:
    """A prompt that runs; number 0 is the empty one and stands for 'nothing cached'.

    Attributes:
        id: its number.
        key: i64[n] the tokens in `pages`.
        name: the whole prompt but its last token, as bytes.
        pages: i32[n / S].
        num_tokens: n.
        pins: sequences that use it.
        parent, children: none.
    """

    __slots__ = ("children", "id", "key", "name", "num_tokens", "pages", "parent", "pins")

    def __init__(self, number: int, key: Keys, name: bytes, pages: Pages) -> None:
        self.parent: CacheNode | None = None
        self.children: dict[Slot, CacheNode] = {}
        self.id = number
        self.key = key
        self.name = name
        self.pages = pages
        self.num_tokens = len(key)
        self.pins = 0

    @property
    def is_pinned(self) -> bool:
        """Return whether it has a pin."""
        return self.pins > 0


@final
class SamplesCache:
    """Map whole prompts to pages of K/V while somebody uses them; implements `PrefixCache`."""

    def __init__(self, pool: PagePool) -> None:
        """Begin without prompts.

        Args:
            pool: gives the page size and keeps the account of pages.
        """
        self.page_size = pool.page_size
        self.num_pages = 0
        self.num_evictable = 0
        self.root = SharedPrompt(0, np.empty(0, np.int64), b"", np.empty(0, np.int32))
        self._pool = pool
        self._prompts: dict[bytes, SharedPrompt] = {}
        self._nodes: dict[int, SharedPrompt] = {0: self.root}
        self._next_id = 1
        self._listeners: list[Listener] = []

    def match(self, key: Keys) -> Match:
        """Return the pages of a prompt that is this key and one token more, or nothing."""
        return _whole(self._find(key))

    def peek(self, key: Keys) -> int:
        """Return the number of tokens that `match` would return."""
        return self._find(key).num_tokens

    def walk(self, key: Keys, start: CacheNode | None = None) -> Place:
        """Return the root, where all keys hang, and the tokens that `match` would return."""
        cached = self.peek(key)
        return Place(self.root, cached, cached)

    def first_key(self, key: Keys, depth: int) -> Slot | None:
        """Return the slot of the page that starts at token `depth`."""
        return slot_behind(key, depth, self.page_size)

    def node(self, node_id: int) -> SharedPrompt:
        """Return the prompt of an id."""
        return self._nodes[node_id]

    def pin(self, node: CacheNode) -> None:
        """Count a user of a prompt."""
        self._nodes[node.id].pins += 1

    def unpin(self, node: CacheNode) -> None:
        """Drop a user; with the last one the prompt goes."""
        prompt = self._nodes[node.id]
        assert prompt.pins > 0, f"prompt {prompt.id} is not pinned"
        prompt.pins -= 1
        if prompt.pins == 0 and prompt is not self.root:
            del self._nodes[prompt.id], self._prompts[prompt.name]
            self._pool.free(prompt.pages, Owner.TREE)
            self.num_pages -= len(prompt.pages)
            self._emit(EventKind.EVICT, prompt)

    def insert(
        self,
        key: Keys,
        pages: Pages,
        shared: int,
        reason: InsertReason,
        start: CacheNode | None = None,
    ) -> Match:
        """Take a prompt when it is computed, by whoever shares none yet; nothing else."""
        if shared:
            assert start is not None, "who shares a prompt says which"
            return _whole(self._nodes[start.id])
        name, num_pages = key[:-1].tobytes(), (len(key) - 1) // self.page_size
        if reason is not InsertReason.CHUNK or num_pages < 1:
            return _whole(self.root)
        own = pages[:num_pages]
        prompt = self._prompts.get(name)
        if prompt is not None:  # computed by two side by side
            self._pool.free(own, Owner.SEQUENCE)
            return _whole(prompt)
        self._pool.transfer(own, Owner.SEQUENCE, Owner.TREE)
        kept = key[: num_pages * self.page_size].copy()
        prompt = SharedPrompt(self._next_id, kept, name, own.copy())
        self._next_id += 1
        self._nodes[prompt.id] = self._prompts[name] = prompt
        self.num_pages += num_pages
        self._emit(EventKind.INSERT, prompt)
        return _whole(prompt)

    def evict(self, num_pages: int) -> int:
        """Free nothing: what is here is used."""
        del num_pages
        return 0

    def reset(self) -> None:
        """Do nothing."""

    def listen(self, listener: Listener) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    def foresee(self, next_use: NextUse) -> bool:
        """Return False: nothing is ever evicted while it is used."""
        del next_use
        return False

    def check(self) -> None:
        """Verify that the prompts' pages are the pool's account of the cache."""
        held = [prompt.pages for prompt in self._nodes.values()]
        owned = self._pool.owned_by(Owner.TREE)
        assert np.array_equal(np.sort(np.concatenate(held)), owned)
        assert self.num_pages == len(owned)
        assert {p.id for p in self._prompts.values()} == self._nodes.keys() - {0}

    def _find(self, key: Keys) -> SharedPrompt:
        return self._prompts.get(key.tobytes(), self.root)

    def _emit(self, kind: EventKind, prompt: SharedPrompt) -> None:
        event = CacheEvent(kind, prompt.id, self.root.id, prompt.key, prompt.num_tokens, 0)
        for listener in self._listeners:
            listener(event)


def _whole(prompt: SharedPrompt) -> Match:
    return Match(prompt.num_tokens, prompt.pages, prompt)
