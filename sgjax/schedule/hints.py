"""Hints: prefixes announced by the frontend, the pins that keep them, and who waits for them.

Imports types, cache and sequence. A hint is a request that wants nothing; its followers name it in
`Request.after`. Its pin lasts from the end of its computation until its last follower is admitted
or gone, or until nothing else can run (architecture section 6).
"""

from dataclasses import dataclass, field

from sgjax.cache import CacheNode, PrefixCache
from sgjax.errors import ConfigError
from sgjax.schedule.sequence import Sequence


@dataclass
class _Hint:
    expected: int
    waiting: int = 0  # followers submitted but not admitted yet, held or not
    node: CacheNode | None = None
    held: list[Sequence] = field(default_factory=list)
    computed: bool = False


class Hints:
    """Own the live hints.

    Args:
        cache: pins are taken there.
    """

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self._hints: dict[str, _Hint] = {}

    def announce(self, hint_id: str, followers: int) -> None:
        """Expect `followers` requests that name this hint."""
        self._hints[hint_id] = _Hint(followers)

    def is_live(self, hint_id: str) -> bool:
        """Return whether followers of this hint may still come."""
        return hint_id in self._hints

    def hold(self, seq: Sequence) -> bool:
        """Keep a follower back while its hint is not computed yet; return whether it is held.

        Raises:
            ConfigError: no live hint has the id that `seq` names.
        """
        hint = self._hints.get(seq.request.after or "")
        if hint is None:
            raise ConfigError(
                f"request {seq.request.id!r} comes after {seq.request.after!r}, which is no live "
                "hint; submit the hint first, with `followers` counting this request"
            )
        hint.waiting += 1
        if not hint.computed:
            hint.held.append(seq)
        return not hint.computed

    def finished(self, hint_id: str, node: CacheNode | None) -> list[Sequence]:
        """Note that a hint was computed (pin its node) or died; return its held followers."""
        hint = self._hints.get(hint_id)
        if hint is None:
            return []
        hint.computed = True
        released, hint.held = hint.held, []
        if hint.expected and node is not None:
            self._cache.pin(node)
            hint.node = node
        self._drop_if_done(hint_id)
        return released

    def forgo(self, hint_id: str | None, followers: int) -> None:
        """Expect so many followers fewer of a hint (None: of none): they will not be taken in."""
        if hint_id in self._hints:
            self._hints[hint_id].expected -= followers
            self._drop_if_done(hint_id)

    def follower_gone(self, seq: Sequence) -> None:
        """Note that a follower was admitted, aborted or failed."""
        hint = self._hints.get(seq.request.after or "")
        if hint is None:
            return
        hint.expected -= 1
        hint.waiting -= 1
        if seq in hint.held:
            hint.held.remove(seq)
        self._drop_if_done(seq.request.after or "")

    def release(self, hint_id: str) -> None:
        """Stop expecting followers that have not been submitted."""
        hint = self._hints.get(hint_id)
        if hint is not None:
            hint.expected = hint.waiting
            self._drop_if_done(hint_id)

    def drop_pins(self) -> bool:
        """Unpin everything because nothing else can run; return whether anything was pinned."""
        dropped = False
        for hint in self._hints.values():
            if hint.node is not None:
                self._cache.unpin(hint.node)
                hint.node = None
                dropped = True
        return dropped

    def _drop_if_done(self, hint_id: str) -> None:
        hint = self._hints[hint_id]
        if hint.computed and hint.expected <= 0:
            if hint.node is not None:
                self._cache.unpin(hint.node)
            del self._hints[hint_id]
