"""LMQL on llama.cpp, through its Python interface: one query after another.

LMQL takes text, so prompts are turned into it and outputs back into ids. LMQL 0.7.3 hands its masks
over in a form that llama.cpp of today does not take; greedy text needs none.
"""

import time
from importlib.metadata import version
from typing import Any

import llama_cpp
import lmql
from remote.base import Decoded, Outputs, Prompts

CONTEXT = 2048


class LmqlPeer:
    """`lmql.model("local:llama.cpp:...")`."""

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
        """See `Peer`; the time holds the prompts too."""
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
        answer = self._model.generate_sync(text, max_tokens=new, temperature=0.0)
        return self._vocabulary.tokenize(answer.encode(), add_bos=False, special=True)


def load(model: str, dtype: str, threads: int, options: dict[str, Any]) -> LmqlPeer:
    """Return the model of a GGUF file, whose tensors already have the dtype.

    Args:
        model: the GGUF file.
        dtype: its own.
        threads: of llama.cpp.
        options: `tokenizer`, a Hugging Face folder, and what llama.cpp's model takes.
    """
    arguments = {"n_ctx": CONTEXT, "n_threads": threads, **options}
    loaded = lmql.model(f"local:llama.cpp:{model}", **arguments)
    vocabulary = llama_cpp.Llama(model, vocab_only=True, verbose=False)
    about = {"lmql": version("lmql"), "llama-cpp-python": llama_cpp.__version__}
    return LmqlPeer(loaded, vocabulary, about)
