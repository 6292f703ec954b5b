"""ForwardingBackend: what all backends share that stand before another one.

Imports the Backend protocol. Calls are each wrapper's own affair; everything else goes to the inner
backend, so that a method added to the protocol reaches it through every wrapper.
"""

import abc
from typing import Any

from sgjax.lang.backends.base import Backend, ChatFormat, Hint, Prompt


class ForwardingBackend(Backend, abc.ABC):
    """A backend that passes on all but calls.

    Args:
        inner: the backend behind it.
    """

    def __init__(self, inner: Backend) -> None:
        self._inner = inner

    @property
    def chat(self) -> ChatFormat:
        """Return the inner backend's."""
        return self._inner.chat

    @property
    def takes_hints(self) -> bool:
        """Return what the inner backend says."""
        return self._inner.takes_hints

    @property
    def continues_messages(self) -> bool:
        """Return what the inner backend says."""
        return self._inner.continues_messages

    def hint(self, prefix: Prompt, followers: int, after: Hint | None) -> Hint | None:
        """Announce a prefix to the inner backend."""
        return self._inner.hint(prefix, followers, after)

    def release(self, hint: Hint, followers: int) -> None:
        """Release a hint of the inner backend."""
        self._inner.release(hint, followers)

    def active(self, change: int) -> None:
        """Tell the inner backend how many threads have something to do."""
        self._inner.active(change)

    def flush_cache(self) -> bool:
        """Drop the inner backend's cached prefixes."""
        return self._inner.flush_cache()

    def get_server_info(self) -> dict[str, Any]:
        """Return what is known of the inner backend's server."""
        return self._inner.get_server_info()
