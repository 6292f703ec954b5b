"""ByteTokenizer: one id a byte, for models without a vocabulary of their own (random weights).

HOST. Imports errors.
"""

from collections.abc import Sequence

from sgjax.errors import ConfigError

_END_ID = 256
_END_TEXT = "<|end|>"


def to_utf8(text: str) -> bytes:
    """Return the bytes of a text.

    Raises:
        ConfigError: it holds half of a surrogate pair.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"the text holds a lone surrogate at character {error.start}, which has no UTF-8 form; "
            "decode it with errors='replace' first"
        ) from None


class ByteTokenizer:
    """Implement `Tokenizer`: ids 0-255 are the bytes, 256 ends a generation."""

    vocab_size = 257
    bos_id = None
    end_ids = frozenset({_END_ID})
    special_ids = frozenset({_END_ID})
    chat_template = None
    fingerprint = "bytes-257"
    strips_leading_space = False

    def encode(self, text: str, *, add_bos: bool = False) -> list[int]:
        """Return the bytes of `text`; `<|end|>` written out in it becomes its id.

        `add_bos` changes nothing, because `bos_id` is None.
        """
        ids: list[int] = []
        for i, part in enumerate(text.split(_END_TEXT)):
            ids += [_END_ID, *to_utf8(part)] if i else to_utf8(part)
        return ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Return the text of `ids`; bytes that are no UTF-8 become U+FFFD."""
        kept = [i for i in ids if not (skip_special and i == _END_ID)]
        return b"".join([self.token_bytes(i) for i in kept]).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return the byte an id stands for, or the literal text of the end token."""
        if 0 <= token_id < 256:
            return bytes([token_id])
        if token_id == _END_ID:
            return _END_TEXT.encode()
        raise ConfigError(f"token id {token_id} is outside the vocabulary [0, {self.vocab_size})")
