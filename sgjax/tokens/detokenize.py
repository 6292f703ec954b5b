"""OutputText: the text of one output as its tokens arrive, and its stop test.

HOST. Imports types and the tokenizer protocol. Works on bytes, because a token may hold a part of a
character (rule 2), and owns who may see which of them::

    [0 ...... fed) [fed ........ held) [held ....... len)
    already taken   goes with `take`   may be the beginning of a stop string (rule 12)
"""

import codecs

from sgjax.tokens.base import Tokenizer
from sgjax.types import SamplingParams

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class OutputText:
    """Collect the output tokens of one request; find stop strings; hand out text that is certain.

    The text continues the prompt, so the first token's leading space is kept also where decoding
    the output alone would drop it (SentencePiece vocabularies).

    Args:
        tokenizer: gives each token's bytes.
        params: `stop`, `min_new_tokens`, `no_stop_trim` and `skip_special_tokens` are used.
    """

    __slots__ = (
        "_before_last",
        "_data",
        "_decoder",
        "_fed",
        "_finished",
        "_last_id",
        "_match",
        "_min_tokens",
        "_num_tokens",
        "_skipped",
        "_stops",
        "_tokenizer",
        "_trim",
    )

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams) -> None:
        self._tokenizer = tokenizer
        # Shortest first: of two stop strings that begin together the shorter is complete first.
        self._stops = tuple((s, s.encode()) for s in sorted(params.stop, key=len))
        self._min_tokens = params.min_new_tokens
        self._num_tokens = 0
        self._trim = not params.no_stop_trim
        self._skipped = tokenizer.special_ids if params.skip_special_tokens else frozenset()
        self._data = bytearray()
        self._decoder = _Utf8Decoder("replace")
        self._fed = 0
        self._match: tuple[int, int, str] | None = None  # start, end, stop string
        self._last_id = -1
        self._before_last = 0
        self._finished = False

    @property
    def text(self) -> str:
        """Return all text so far, held back or not; after `finish` the final text."""
        return self._data.decode("utf-8", "replace")

    @property
    def num_bytes(self) -> int:
        """Return the length of the text so far."""
        return len(self._data)

    def append(self, token_id: int) -> str | None:
        """Feed one output token.

        Returns:
            The stop string that the text contains (the one that begins first), or None; one that
            was complete before `min_new_tokens` does not count.
        """
        data = self._data
        self._last_id = token_id
        self._before_last = old = len(data)
        if token_id not in self._skipped:
            data += self._tokenizer.token_bytes(token_id)
        if self._stops and self._match is None:
            self._num_tokens += 1
            if self._num_tokens >= self._min_tokens:
                self._match = self._search(old)
        return self._match[2] if self._match else None

    def append_many(self, token_id: int, count: int) -> None:
        """Feed one token `count` times, at least once; only where there are no stop strings."""
        assert not self._stops, "stop strings are looked for token by token"
        if count > 1 and token_id not in self._skipped:
            self._data += self._tokenizer.token_bytes(token_id) * (count - 1)
        self.append(token_id)

    def append_forced(self, data: bytes) -> str | None:
        """Feed text that a constraint forces, whatever tokens it is made of (never with a minimum).

        Returns:
            As `append`.
        """
        old = len(self._data)
        self._data += data
        self._last_id, self._before_last = -1, len(self._data)
        if self._stops and self._match is None:
            self._match = self._search(old)
        return self._match[2] if self._match else None

    def take(self) -> str:
        """Return the text that became certain since the last call.

        Only whole characters come out, and nothing that a stop string may still cut off. A stop
        *token* is cut off by `finish`, so call that first where the last token was one.
        """
        held = len(self._data) if self._finished else self._held()
        new = self._data[self._fed : held]
        self._fed = held
        return self._decoder.decode(new, self._finished)

    def finish(self, matched: str | int | None) -> str:
        """End the output and return its final text; `take` then yields what is left of it.

        Args:
            matched: what ended it: a stop string that `append` returned, the id of the last token,
                or None. The stop string and all behind it, or the token's text, is cut off; with
                `no_stop_trim` only what lies behind the stop string is.
        """
        if isinstance(matched, str):
            assert self._match is not None, "finished on a stop string that `append` did not report"
            start, end, _ = self._match
            del self._data[start if self._trim else end :]
        elif matched is not None and matched == self._last_id and self._trim:
            assert self._fed <= self._before_last, "a stop token's text was taken before `finish`"
            del self._data[self._before_last :]
        self._finished = True
        return self.text

    def _search(self, seen: int) -> tuple[int, int, str] | None:
        """Return the match that begins first, of those that end after byte `seen`."""
        best: tuple[int, int, str] | None = None
        for stop, data in self._stops:
            at = self._data.find(data, max(0, seen - len(data) + 1))
            if at >= 0 and (best is None or at < best[0]):
                best = (at, at + len(data), stop)
        return best

    def _held(self) -> int:
        """Return the end of the bytes that no stop string can cut off any more."""
        if self._match is not None:
            return self._match[0] if self._trim else self._match[1]
        size = len(self._data)
        if not self._trim:
            return size
        held = size
        for _, stop in self._stops:
            # What was taken earlier cannot begin a stop string, or it would have been held back.
            at = self._data.find(stop[:1], max(self._fed, size - len(stop) + 1), held)
            while at >= 0 and not stop.startswith(self._data[at:]):
                at = self._data.find(stop[:1], at + 1, held)
            if at >= 0:
                held = at
        return held
