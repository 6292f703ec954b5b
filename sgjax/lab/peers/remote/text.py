"""Peers that take text, one program after another, on llama.cpp.

Prompts are turned into text and answers back into ids. Nothing else may stand before a prompt (no
token that begins a text: the ids hold it where the model wants one), and where an engine ends an
answer early, it goes on behind the end token, so that all peers compute the same number of tokens.
"""

import time
from collections.abc import Callable

import llama_cpp
from remote.base import Decoded, Outputs, Prompts

CONTEXT = 2048

Answer = Callable[[str, int], str]
"""Return what follows a text, at most so many tokens of it; nothing where an end token follows."""


class TextPeer:
    """An engine that answers texts.

    Args:
        answer: the engine.
        model: the GGUF file, whose vocabulary the ids are of.
        about: the engine's version.
    """

    def __init__(self, answer: Answer, model: str, about: dict[str, str]) -> None:
        self._answer = answer
        self._vocabulary = llama_cpp.Llama(model, vocab_only=True, verbose=False)
        self._about = {**about, "llama-cpp-python": llama_cpp.__version__}

    def about(self) -> dict[str, str]:
        """See `Peer`."""
        return self._about

    def generate(self, prompts: Prompts, new: int) -> Outputs:
        """See `Peer`."""
        return [self._one(prompt, new) for prompt in prompts]

    def decode(self, prompts: Prompts, new: int) -> Decoded:
        """See `Peer`; there are no batches, so the time holds the prompts too."""
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
        ids: list[int] = []
        while len(ids) < new:
            text = self._vocabulary.detokenize([*prompt, *ids], special=True)
            answer = self._answer(text.decode("utf-8", "replace"), new - len(ids))
            said = self._vocabulary.tokenize(answer.encode(), add_bos=False, special=True)
            ids += said or [self._vocabulary.token_eos()]
        return ids[:new]
