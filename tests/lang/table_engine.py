"""An engine whose probabilities are a pure function, so that scores can be computed by hand."""

import itertools
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from sgjax.tokens.base import Tokenizer
from sgjax.types import Completion, Delta, FinishKind, FinishReason, Request, TokenLogprob, Wants


def logprob(before: Sequence[int], token: int) -> float:
    """Return the made-up log-probability of a token after others."""
    return -0.1 - zlib.crc32(repr((list(before), token)).encode()) % 1000 / 100


def reference_score(before: Sequence[int], tokens: Sequence[int]) -> list[float]:
    """Return the log-probabilities of tokens, one after the other."""
    return [logprob([*before, *tokens[:i]], token) for i, token in enumerate(tokens)]


class TableEngine:
    """Answers at once; only scoring and hints."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.submitted: list[list[Request]] = []
        self._ids = itertools.count()

    def submit(
        self, requests: list[Request], hear: Callable[[int, Delta | Exception], None]
    ) -> None:
        self.submitted.append(requests)
        for index, request in enumerate(requests):
            hear(index, Delta(request.id, "", (), self._complete(request)))

    def _complete(self, request: Request) -> Completion:
        assert request.wants is not Wants.TOKENS
        entries = None
        if request.logprob_start is not None:
            start, tokens = request.logprob_start, request.tokens
            scored = [
                TokenLogprob(logprob(tokens[:i], tokens[i]), tokens[i])
                for i in range(start + 1, len(tokens))
            ]
            entries = (TokenLogprob(None, tokens[start]), *scored)
        reason = FinishReason(FinishKind.STOP)
        size = len(request.tokens)
        return Completion(request.id, "", (), size, 0, 0, reason, entries, None, 0.0, 0.0, 0.0)

    def new_id(self) -> str:
        return f"r{next(self._ids)}"

    def release_hint(self, hint_id: str, followers: int | None = None) -> None:
        pass

    def flush_cache(self) -> bool:
        return True

    def get_server_info(self) -> dict[str, Any]:
        return {}


def logsumexp(values: Sequence[float]) -> float:
    return math.log(sum(map(math.exp, values)))
