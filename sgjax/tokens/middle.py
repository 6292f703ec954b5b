"""Encoding what stands in the middle of a text, where tokenizers think of a text's beginning.

HOST. Imports the tokenizer protocol.
"""

from sgjax.tokens.base import Tokenizer


def encode_bytes(tokenizer: Tokenizer, data: bytes) -> list[int] | None:
    """Return the tokens of a text that stands in the middle of another.

    Returns:
        None where the bytes are no whole characters, or no tokens stand for exactly them (text
        that spells a special token, say).
    """
    if not data:
        return []
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if not tokenizer.strips_leading_space:
        ids = tokenizer.encode(text)
    elif text.startswith(" "):
        ids = tokenizer.encode(text[1:])  # the space comes back by itself
    else:
        # Nothing merges with a line break, so what comes behind it is encoded as in the middle.
        ids = tokenizer.encode("\n" + text)
        size, drop = 0, 0
        while size < 2 and drop < len(ids):
            size += len(tokenizer.token_bytes(ids[drop]))
            drop += 1
        ids = ids[drop:]
    special = tokenizer.special_ids | tokenizer.end_ids
    if any(i in special for i in ids):
        return None
    return ids if b"".join([tokenizer.token_bytes(i) for i in ids]) == data else None
