"""llama.cpp through llama-cpp-python's low-level calls: batched, with one slot a sequence.

A slot keeps the K/V of its last text, and a prompt takes over the longest prefix that any slot
holds: what llama.cpp's server does with its slots.
"""

import ctypes
import os
import time
from typing import Any

import llama_cpp as ll
import numpy as np
from remote.base import Decoded, Outputs, Prompts

SLOTS, SLOT_TOKENS, BATCH = 32, 1536, 2048


class LlamaCppPeer:
    """A context of `SLOTS` sequences."""

    def __init__(self, ctx: Any, vocab_size: int, about: dict[str, str]) -> None:
        self._ctx, self._memory = ctx, ll.llama_get_memory(ctx)
        self._vocab_size = vocab_size
        self._about = about
        self._held: Prompts = [[] for _ in range(SLOTS)]
        self._batch = ll.llama_batch_init(BATCH, 0, 1)

    def about(self) -> dict[str, str]:
        """See `Peer`."""
        return self._about

    def generate(self, prompts: Prompts, new: int) -> Outputs:
        """See `Peer`; prompts are taken in waves of as many as there are slots."""
        outputs: Outputs = []
        for at in range(0, len(prompts), SLOTS):
            outputs += self._wave(prompts[at : at + SLOTS], new).outputs
        return outputs

    def decode(self, prompts: Prompts, new: int) -> Decoded:
        """See `Peer`; a slot that holds its prompt computes its last token again."""
        return self._wave(prompts, new)

    def forget(self) -> None:
        """See `Peer`."""
        ll.llama_memory_clear(self._memory, True)
        self._held = [[] for _ in range(SLOTS)]

    def compilations(self) -> int:
        """See `Peer`; nothing is compiled."""
        return 0

    def _wave(self, prompts: Prompts, new: int) -> Decoded:
        slots = range(len(prompts))
        last = [self._fill(slot, prompts[slot]) for slot in slots]
        outputs = [[token] for token in last]
        start = time.perf_counter()
        for _ in range(new - 1):
            last = self._compute([(s, len(self._held[s]), last[s], True) for s in slots])
            for slot, token in zip(slots, last, strict=True):
                outputs[slot].append(token)
        return Decoded(outputs, time.perf_counter() - start, len(prompts) * (new - 1))

    def _fill(self, slot: int, prompt: list[int]) -> int:
        """Compute what no slot holds of a prompt, and return its first new token."""
        # One token is left over, because its logits are wanted.
        shared = [min(_common(held, prompt), len(prompt) - 1) for held in self._held]
        best = max(range(SLOTS), key=lambda s: (shared[s], s == slot))
        if shared[best] > shared[slot]:
            ll.llama_memory_seq_rm(self._memory, slot, -1, -1)
            ll.llama_memory_seq_cp(self._memory, best, slot, -1, -1)
        kept = shared[best]
        ll.llama_memory_seq_rm(self._memory, slot, kept, -1)
        self._held[slot] = prompt[:kept]
        first = -1
        for at in range(kept, len(prompt), BATCH):
            end = min(at + BATCH, len(prompt))
            rows = [(slot, i, prompt[i], i + 1 == len(prompt)) for i in range(at, end)]
            first = (self._compute(rows) or [-1])[-1]
        return first

    def _compute(self, rows: list[tuple[int, int, int, bool]]) -> list[int]:
        """Run (slot, position, token, wanted) rows; return the likeliest ids after wanted ones."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, (slot, position, token, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, slot
            self._held[slot].append(token)
        status = ll.llama_decode(self._ctx, batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status}")
        return [self._argmax(i) for i, row in enumerate(rows) if row[3]]

    def _argmax(self, row: int) -> int:
        logits = ll.llama_get_logits_ith(self._ctx, row)
        return int(np.ctypeslib.as_array(logits, (self._vocab_size,)).argmax())


def _common(a: list[int], b: list[int]) -> int:
    """Return the length of the longest common prefix."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(np.array(a[:n]) != np.array(b[:n]))
    return int(differs[0]) if len(differs) else n


def load(model: str, dtype: str, threads: int, options: dict[str, Any]) -> LlamaCppPeer:
    """Return a context over a GGUF file, whose tensors already have the dtype."""
    ll.llama_log_set(_SILENT, ctypes.c_void_p(0))
    ll.llama_backend_init()
    loaded = ll.llama_model_load_from_file(os.fsencode(model), ll.llama_model_default_params())
    if not loaded:
        raise RuntimeError(f"llama.cpp cannot load {model}")
    params = ll.llama_context_default_params()
    params.n_ctx, params.n_seq_max = SLOTS * SLOT_TOKENS, SLOTS
    params.n_batch, params.n_ubatch = BATCH, 512
    params.n_threads = params.n_threads_batch = threads
    params.kv_unified = False
    for key, value in options.items():
        setattr(params, key, value)
    ctx = ll.llama_init_from_model(loaded, params)
    if not ctx:
        raise RuntimeError("llama.cpp made no context")
    vocab_size = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(loaded))
    about = {"llama-cpp-python": ll.__version__, "slots": str(SLOTS)}
    about |= {k: str(v) for k, v in options.items()}
    return LlamaCppPeer(ctx, vocab_size, about)


@ll.llama_log_callback
def _SILENT(level: int, text: bytes, data: Any) -> None:  # noqa: N802 - a constant
    pass
