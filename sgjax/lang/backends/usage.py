"""TokenUsage: what an API's calls cost. Imports the standard library."""

import threading
from typing import final


@final
class TokenUsage:
    """Count requests and tokens; safe to use from several threads.

    Attributes:
        requests: calls that were answered.
        prompt_tokens, completion_tokens: as the API reports them.
        used_tokens: completion tokens that became text of a program at once.
        reused_tokens: completion tokens that answered a later generation (API speculation).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Set all counters to 0."""
        self.requests = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.used_tokens = 0
        self.reused_tokens = 0

    @property
    def wasted_tokens(self) -> int:
        """Return completion tokens that became no program's text."""
        return self.completion_tokens - self.used_tokens - self.reused_tokens

    def add(
        self,
        requests: int = 0,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        used_tokens: int = 0,
        reused_tokens: int = 0,
    ) -> None:
        """Add to the counters."""
        with self._lock:
            self.requests += requests
            self.prompt_tokens += prompt_tokens
            self.completion_tokens += completion_tokens
            self.used_tokens += used_tokens
            self.reused_tokens += reused_tokens
