"""Smaller vocabularies, cut from a larger one. HOST. Imports `tokenizers`, errors, fast.

Byte-pair training adds one merge after another, so a vocabulary's first tokens are the vocabulary
that the same training would have given, had it stopped there.
"""

import dataclasses
import json

import tokenizers

from sgjax.errors import ConfigError
from sgjax.tokens.fast import FastTokenizer


def first_tokens(tokenizer: FastTokenizer, size: int) -> FastTokenizer:
    """Return a byte-level vocabulary's first tokens as a tokenizer of its own.

    Args:
        tokenizer: the larger one.
        size: how many ids are kept; special tokens and single bytes must be among them.

    Raises:
        ConfigError: it is no byte-level vocabulary, or `size` is not allowed for it.
    """
    rules, facts = json.loads(tokenizer.rules()), tokenizer.facts
    if rules["model"]["type"] != "BPE" or '"ByteLevel"' not in json.dumps(rules["pre_tokenizer"]):
        raise ConfigError(
            "only a byte-level vocabulary can be cut to its first tokens; leave out vocab_size, or "
            "name another tokenizer"
        )
    single = [i for i, piece in enumerate(facts.piece_bytes) if len(piece) == 1]
    least = max([*single, *facts.special_ids, *facts.end_ids]) + 1
    if not least <= size <= tokenizer.vocab_size:
        raise ConfigError(
            f"vocab_size={size} is not allowed; this vocabulary's single bytes and special tokens "
            f"need {least}, and it has {tokenizer.vocab_size} tokens"
        )
    vocab = {piece: i for piece, i in rules["model"]["vocab"].items() if i < size}
    rules["model"]["vocab"] = vocab
    rules["model"]["merges"] = [m for m in rules["model"]["merges"] if "".join(m) in vocab]
    rules["added_tokens"] = [token for token in rules["added_tokens"] if token["id"] < size]
    backend = tokenizers.Tokenizer.from_str(json.dumps(rules))
    return FastTokenizer(backend, dataclasses.replace(facts, piece_bytes=facts.piece_bytes[:size]))
