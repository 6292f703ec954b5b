"""GuidedGrammar: JSON schemas beyond the regular subset, through the package `llguidance`.

HOST. Imports its neighbours; llguidance (extra `grammar`) is loaded only where a schema needs it.
A state is the tokens so far, known by a number; the package's matchers are kept for recent states
and rebuilt for others.
"""

import threading
from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgjax.errors import GrammarError
from sgjax.fsm.json_schema import JsonStyle
from sgjax.fsm.kernels import RowStore
from sgjax.fsm.vocabulary import Vocabulary, pack_ids
from sgjax.tokens.base import Tokenizer

_KEPT_MATCHERS = 64


class GuidedCompiler:
    """Compile schemas with llguidance.

    Args:
        tokenizer: of the model.
        vocabulary: its tokens.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
        import llguidance

        self._package: Any = llguidance
        self._vocabulary = vocabulary
        wrapped = llguidance.TokenizerWrapper(_Adapter(tokenizer, vocabulary))
        self._tokenizer = llguidance.LLTokenizer(wrapped, n_vocab=vocabulary.size)

    def __call__(self, schema: str, style: JsonStyle, max_bytes: int) -> "GuidedGrammar":
        """Compile the JSON text of a schema.

        Raises:
            GrammarError: llguidance refuses it; the message is its own.
        """
        try:
            text = self._package.LLMatcher.grammar_from_json_schema(
                schema, overrides=_options(style)
            )
        except ValueError as error:
            raise GrammarError(f"json_schema: {error}") from None
        matcher = self._package.LLMatcher(self._tokenizer, text, log_level=0)
        if matcher.is_error():
            raise GrammarError(f"json_schema (llguidance): {matcher.get_error()}")
        return GuidedGrammar(
            matcher, self._vocabulary, RowStore(self._vocabulary.num_words, max_bytes), {}
        )


class GuidedGrammar:
    """A grammar whose states are discovered as they are reached.

    Args:
        matcher: at the start.
        vocabulary: the tokens.
        store: masks, shared by all requests with the same schema.
        row_numbers: rows of the store by their bytes; shared likewise.
    """

    start = 0
    dfa = None

    def __init__(
        self,
        matcher: Any,
        vocabulary: Vocabulary,
        store: RowStore,
        row_numbers: dict[bytes, int],
    ) -> None:
        self._root = matcher
        self._vocabulary = vocabulary
        self.store = store
        self._row_numbers = row_numbers
        self._origin: list[tuple[int, int]] = [(-1, -1)]  # the state before, and the token
        self._numbers: dict[tuple[int, int], int] = {}
        self._matchers: OrderedDict[int, Any] = OrderedDict()
        self._row_of: dict[int, int] = {}
        self._lock = threading.RLock()
        allowed = [i for i, data in enumerate(vocabulary.token_bytes) if data]
        self._usable = pack_ids(allowed, vocabulary.num_words)

    def for_request(self) -> "GuidedGrammar":
        """Return a grammar of its own for a request, which takes its states along when it ends."""
        return GuidedGrammar(self._root, self._vocabulary, self.store, self._row_numbers)

    @property
    def rows(self) -> NDArray[np.uint32]:
        """Return u32[U, W] distinct masks known so far."""
        return self.store.rows

    def mask_row(self, state: int) -> int:
        """See `Grammar`."""
        with self._lock:
            row = self._row_of.get(state)
            if row is None:
                matcher = self._matcher(state)
                mask = np.frombuffer(matcher.compute_bitmask(), "<u4").astype(np.uint32)
                mask = mask[: self._vocabulary.num_words] & self._usable
                if matcher.is_accepting():
                    mask |= self._vocabulary.end_row
                row = self._row_of[state] = self.store.add(mask, self._row_numbers)
            return row

    def advance(self, state: int, token_id: int) -> int:
        """See `Grammar`."""
        with self._lock:
            found = self._numbers.get((state, token_id))
            if found is not None:
                return found
            number = -1
            if token_id < len(self._vocabulary.token_bytes) and self._usable_id(token_id):
                matcher = self._matcher(state).deep_copy()
                if matcher.try_consume_tokens([token_id]) == 1:
                    number = len(self._origin)
                    self._origin.append((state, token_id))
                    self._keep(number, matcher)
            self._numbers[state, token_id] = number
            return number

    def is_accepting(self, state: int) -> bool:
        """See `Grammar`."""
        with self._lock:
            return bool(self._matcher(state).is_accepting())

    def is_final(self, state: int) -> bool:
        """See `Grammar`."""
        if not self.is_accepting(state):
            return False
        row = self.mask_row(state)
        return not (self.store.buffer[row] & ~self._vocabulary.end_row).any()

    def forced(self, state: int) -> tuple[bytes, frozenset[int] | None]:
        """See `Grammar`."""
        with self._lock:
            matcher = self._matcher(state)
            if matcher.is_accepting():
                return b"", None
            data: bytes = matcher.compute_ff_bytes()
        return _whole_characters(data), None

    def _usable_id(self, token_id: int) -> bool:
        return bool(self._vocabulary.token_bytes[token_id])

    def _matcher(self, state: int) -> Any:
        """Return the matcher of a state, to be read only."""
        path = []
        at = state
        while at != self.start and at not in self._matchers:
            at, token = self._origin[at]
            path.append(token)
        found = self._root if at == self.start else self._matchers[at]
        if path:
            found = found.deep_copy()
            consumed = found.try_consume_tokens(path[::-1])
            assert consumed == len(path), "llguidance refused tokens that it allowed before"
        if state != self.start:
            self._keep(state, found)
        return found

    def _keep(self, state: int, matcher: Any) -> None:
        self._matchers[state] = matcher
        self._matchers.move_to_end(state)
        if len(self._matchers) > _KEPT_MATCHERS:
            self._matchers.popitem(last=False)


class _Adapter:
    """A tokenizer as llguidance wants it."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = min(vocabulary.end_ids, default=0)
        self.bos_token_id = tokenizer.bos_id
        known = [tokenizer.token_bytes(i) for i in range(len(vocabulary.token_bytes))]
        self.tokens = known + [b""] * (vocabulary.size - len(known))
        self.special_token_ids = sorted(tokenizer.special_ids | vocabulary.end_ids)

    def __call__(self, text: str | bytes) -> list[int]:
        return self._tokenizer.encode(text.decode() if isinstance(text, bytes) else text)


def _options(style: JsonStyle) -> dict[str, Any]:
    if style.whitespace == "bounded":
        space = rf"[ \n\t]{{0,{style.most}}}"
        return {"whitespace_flexible": True, "whitespace_pattern": space}
    comma, colon = (", ", ": ") if style.whitespace == "fixed" else (",", ":")
    return {"whitespace_flexible": False, "item_separator": comma, "key_separator": colon}


def _whole_characters(data: bytes) -> bytes:
    """Return the longest beginning that ends at the end of a character."""
    for end in range(len(data), max(-1, len(data) - 4), -1):
        try:
            data[:end].decode()
        except UnicodeDecodeError:
            continue
        return data[:end]
    return b""
