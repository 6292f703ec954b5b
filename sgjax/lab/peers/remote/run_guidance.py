"""Guidance on llama.cpp: one program after another, each beginning with what the last one left."""

from importlib.metadata import version
from typing import Any

import guidance
from remote.text import CONTEXT, TextPeer


def load(model: str, dtype: str, threads: int, options: dict[str, Any]) -> TextPeer:
    """Return the model of a GGUF file, whose tensors already have the dtype."""
    arguments = {"n_ctx": CONTEXT, "n_threads": threads, "verbose": False, **options}
    loaded = guidance.models.LlamaCpp(model, echo=False, **arguments)

    def answer(text: str, new: int) -> str:
        program = loaded + text + guidance.gen("answer", max_tokens=new, temperature=0.0)
        said: str = program["answer"]
        return said

    return TextPeer(answer, model, {"guidance": version("guidance")})
