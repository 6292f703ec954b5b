"""Guidance on llama.cpp: one program after another, each beginning with what the last one left."""

from importlib.metadata import version
from typing import Any

import guidance
from remote.text import CONTEXT, TextPeer

MOST_BYTES = 4
"""Of a character; a token holds one at least."""


def load(model: str, dtype: str, threads: int, options: dict[str, Any]) -> TextPeer:
    """Return the model of a GGUF file, whose tensors already have the dtype."""
    arguments = {"n_ctx": CONTEXT, "n_threads": threads, "verbose": False, **options}
    loaded = guidance.models.LlamaCpp(model, echo=False, **arguments)
    # It would begin each text with the vocabulary's token for that, wanted by the model or not.
    loaded._interpreter.engine.tokenizer._bos_token_id = None

    def answer(text: str, new: int) -> str:
        for more in range(MOST_BYTES):
            try:
                program = (
                    loaded + text + guidance.gen("answer", max_tokens=new + more, temperature=0.0)
                )
            except UnicodeDecodeError:  # it has no answer that ends within a character
                continue
            said: str = program["answer"]
            return said
        raise RuntimeError(f"no whole character in {new} to {new + MOST_BYTES - 1} tokens")

    return TextPeer(answer, model, {"guidance": version("guidance")})
