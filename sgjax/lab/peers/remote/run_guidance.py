"""Guidance on llama.cpp: one program after another, each beginning with what the last one left.

Guidance takes text, so prompts are turned into it and outputs back into ids.
"""

import time
from importlib.metadata import version
from typing import Any

import guidance
import llama_cpp
from remote.base import Decoded, Outputs, Prompts

CONTEXT = 2048


class GuidancePeer:
    """`guidance.models.LlamaCpp`."""

    def __init__(self, model: Any, vocabulary: llama_cpp.Llama, about: dict[str, str]) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._about = about

    def about(self) -> dict[str, str]:
        """See `Peer`."""
        return self._about

    def generate(self, prompts: Prompts, new: int) -> Outputs:
        """See `Peer`."""
        return [self._one(prompt, new) for prompt in prompts]

    def decode(self, prompts: Prompts, new: int) -> Decoded:
        """See `Peer`; Guidance has no batches, so the time holds the prompts too."""
        start = time.perf_counter()
        outputs = self.generate(prompts, new)
        return Decoded(outputs, time.perf_counter() - start, sum(map(len, outputs)))

    def forget(self) -> None:
        """See `Peer`: a text that shares nothing takes the place of the last one."""
        self._one([0], 1)

    def compilations(self) -> int:
        """See `Peer`; nothing is compiled."""
        return 0

    def _one(self, prompt: list[int], new: int) -> list[int]:
        text = self._vocabulary.detokenize(prompt, special=True).decode("utf-8", "replace")
        program = self._model + text + guidance.gen("answer", max_tokens=new, temperature=0.0)
        return self._vocabulary.tokenize(program["answer"].encode(), add_bos=False, special=True)


def load(model: str, dtype: str, threads: int, options: dict[str, Any]) -> GuidancePeer:
    """Return the model of a GGUF file, whose tensors already have the dtype."""
    arguments = {"n_ctx": CONTEXT, "n_threads": threads, "verbose": False, **options}
    loaded = guidance.models.LlamaCpp(model, echo=False, **arguments)
    vocabulary = llama_cpp.Llama(model, vocab_only=True, verbose=False)
    about = {"guidance": version("guidance"), "llama-cpp-python": llama_cpp.__version__}
    return GuidancePeer(loaded, vocabulary, about)
