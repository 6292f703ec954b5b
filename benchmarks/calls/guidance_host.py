"""Measure what Guidance 0.1.8 costs the host: its own LlamaCpp class on an instant model.

    python benchmarks/calls/guidance_host.py tokenizer.model text.txt

Its environment needs guidance==0.1.8, numpy<2 and sentencepiece. Prints the least processor time
of several calls `model + prompt + gen(...)`, fitted by a prompt token and a pass over the model,
and the passes that calls take.
"""

import ctypes
import sys
import time
from collections import Counter
from types import ModuleType
from typing import Any

import numpy as np
import sentencepiece

BATCH, CONTEXT = 512, 4096
WORDS = ["▁the", "▁quick", "▁brown", "▁over", "▁dog", "▁and", "▁on"]
I32, F32 = ctypes.c_int32, ctypes.c_float


class Batch(ctypes.Structure):
    """What guidance fills in of llama.cpp's `llama_batch`."""

    _fields_ = [
        ("n_tokens", I32),
        ("token", I32 * BATCH),
        ("pos", I32 * BATCH),
        ("n_seq_id", I32 * BATCH),
        ("seq_id", (I32 * 1) * BATCH),
        ("logits", ctypes.c_int8 * BATCH),
    ]


class InstantModel(ModuleType):
    """A stand-in for llama_cpp: the vocabulary's own tokens, and logits that are there already.

    Args:
        vocabulary: of SentencePiece's BPE kind.
    """

    def __init__(self, vocabulary: sentencepiece.SentencePieceProcessor) -> None:
        super().__init__("llama_cpp")
        size = vocabulary.vocab_size()
        logits = (F32 * (BATCH * size))()
        rows = np.ctypeslib.as_array(logits).reshape(BATCH, size)
        noise = np.random.default_rng(0).standard_normal((len(WORDS), size)) * 3
        for row, word in zip(noise, WORDS, strict=True):
            row[vocabulary.piece_to_id(word)] = 40.0
        rows[:] = noise[np.arange(BATCH) % len(WORDS)]
        passes: list[int] = []
        self.passes = passes

        class Llama:
            """Of llama_cpp."""

            n_batch, ctx, model = BATCH, None, None

            def __init__(self, model_path: str, **options: Any) -> None:
                del model_path, options

            def n_ctx(self) -> int:
                return CONTEXT

            def n_vocab(self) -> int:
                return size

            def token_bos(self) -> int:
                return 1

            def token_eos(self) -> int:
                return 2

            def detokenize(self, ids: list[int]) -> bytes:
                piece: str = vocabulary.id_to_piece(ids[0])
                if vocabulary.is_byte(ids[0]):
                    return bytes([int(piece[3:5], 16)])
                return b"" if ids[0] < 3 else piece.replace("▁", " ").encode()

            def tokenize(self, text: bytes, **options: Any) -> list[int]:
                del options
                begins = text.startswith(b"<s>")
                said = text.removeprefix(b"<s>").decode().removeprefix(" ")
                return [1] * begins + list(vocabulary.encode(said))

        class LlamaTokenizer:
            """Of llama_cpp."""

            def __init__(self, llama: Llama) -> None:
                self.llama = llama

        def decode(ctx: object, batch: Batch) -> int:
            passes.append(batch.n_tokens)
            rows[batch.n_tokens - 1] = noise[len(passes) % len(WORDS)]
            return 0

        self.Llama, self.LlamaTokenizer = Llama, LlamaTokenizer
        self.llama_batch_init = lambda n_tokens, embd, n_seq_max: Batch()
        self.llama_batch_free = self.llama_kv_cache_seq_rm = lambda *of_it: None
        self.llama_token_get_text = lambda model, i: vocabulary.id_to_piece(i).encode()
        self.llama_decode = decode
        self.llama_get_logits = lambda ctx: ctypes.cast(logits, ctypes.POINTER(F32))


def main(vocabulary_file: str, text_file: str) -> None:
    """Print what calls cost."""
    vocabulary = sentencepiece.SentencePieceProcessor(model_file=vocabulary_file)
    instant = sys.modules["llama_cpp"] = InstantModel(vocabulary)
    import guidance

    model = guidance.models.LlamaCpp("instant", echo=False, n_gpu_layers=-1, n_ctx=CONTEXT)
    with open(text_file, encoding="utf-8") as file:
        tokens = vocabulary.encode(file.read())
    facts: list[tuple[int, int]] = []
    seconds: list[float] = []
    further: Counter[int] = Counter()
    for length, new in [(n, 1) for n in range(300, 3900, 400)] + [(600, 4**i) for i in range(1, 4)]:
        for begin in (0, 777, 2222):
            prompt = vocabulary.decode(tokens[begin : begin + length])
            if begin + length > len(tokens):
                raise SystemExit(f"the text has {len(tokens)} tokens; {begin + length} are needed")
            took = []
            for _ in range(5):
                instant.passes.clear()
                start = time.process_time()
                try:
                    model + prompt + guidance.gen("answer", max_tokens=new, temperature=0.0)
                except Exception as error:  # it fails on some limits by itself; say so, go on
                    print(f"{length} tokens, {new} new: {error}")
                    break
                took.append(time.process_time() - start)
            if took:
                facts.append((length, len(instant.passes)))
                seconds.append(min(took))
                further[len(instant.passes) - new] += 1
    per_token, per_pass = np.linalg.lstsq(np.array(facts, float), np.array(seconds), rcond=None)[0]
    print(f"a prompt token {per_token * 1e6:.2f} us, a pass {per_pass * 1e3:.2f} ms")
    print(f"passes beyond the output: {dict(sorted(further.items()))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
