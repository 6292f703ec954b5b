"""Measure what LMQL 0.7.3 costs the host: its own client and server on an instant model.

    python benchmarks/calls/lmql_host.py TOKENIZER_FOLDER text.txt

Its environment needs lmql==0.7.3 and transformers (no PyTorch). Client and server share a process
here, so their processor times are told apart by what the model's thread takes for a token. Prints
them, by call and by prompt token, and which passes a model is asked for.
"""

import asyncio
import sys
import time
from typing import Any, ClassVar

import lmql
import numpy as np
from lmql.models.lmtp.backends.lmtp_model import LMTPModel, LMTPModelResult
from transformers import AutoTokenizer

TOKENIZER = AutoTokenizer.from_pretrained(sys.argv[1])
WORDS = [" the", " quick", " brown", " over", " dog", " and", " on"]
LOGITS = np.random.default_rng(0).standard_normal((len(WORDS), len(TOKENIZER))) * 3
for _row, _word in zip(LOGITS, WORDS, strict=True):
    _row[TOKENIZER.encode(_word, add_special_tokens=False)[-1]] = 40.0


class InstantModel(LMTPModel):
    """A backend of LMQL's server whose logits are there already.

    Attributes:
        asked: prompt length and output length of each call of the model.
        token_s: processor seconds that the server took for all tokens.
    """

    max_batch_size = 32
    asked: ClassVar[list[tuple[int, int]]] = []
    token_s = 0.0

    def __init__(self, name: str, **options: Any) -> None:
        del name, options  # it is made anew for each query

    @property
    def eos_token_id(self) -> int:
        return int(TOKENIZER.eos_token_id)

    def model_info(self) -> str:
        return "instant"

    def generate(  # the arguments are LMQL's
        self, input_ids, attention_mask, temperature, max_new_tokens, bias_tensor, streamer, **of_it
    ):
        InstantModel.asked.append((input_ids.shape[1], max_new_tokens))
        scores: list[Any] = []
        while True:
            logits = LOGITS[[input_ids.shape[1] % len(WORDS)] * len(input_ids)]
            start = time.thread_time()
            if any(bias_tensor):
                logits = logits + self.make_bias_tensor(bias_tensor, logits.shape[1])
            input_ids = np.concatenate([input_ids, logits.argmax(-1)[:, None]], axis=1)
            scores.append(logits)
            is_last = len(scores) == max_new_tokens
            if not is_last:
                streamer(input_ids, scores)
            InstantModel.token_s += time.thread_time() - start
            if is_last:
                return LMTPModelResult(sequences=input_ids, scores=scores)


LMTPModel.registry["instant"] = InstantModel
MODEL = lmql.model("local:instant:x", tokenizer=sys.argv[1], async_transport=True)


async def ask(prompt: str, limit: int) -> str:
    """Ask as SGLang's benchmarks do, which make a query for each call."""

    @lmql.query(model=MODEL)
    async def program(question, limit):
        '''lmql
        """{question}[ANSWER]""" where len(TOKENS(ANSWER)) < limit
        return ANSWER
        '''

    return await program(question=prompt, limit=limit, temperature=0, max_len=4096)


async def least(prompt: str, limit: int, times: int = 5) -> tuple[float, float]:
    """Return the least processor seconds of a call's client, and of its server for a token."""
    took = []
    for _ in range(times):
        InstantModel.asked.clear()
        InstantModel.token_s = 0.0
        start = time.process_time()
        await ask(prompt, limit)
        own_s = time.process_time() - start - InstantModel.token_s
        took.append((own_s, InstantModel.token_s / sum(new for _, new in InstantModel.asked)))
    return min(took)


async def main(text_file: str) -> None:
    """Print what calls cost."""
    with open(text_file, encoding="utf-8") as file:
        text = file.read()
    facts, seconds = [], []
    for characters in (500, 2500, 5000, 7500, 10000):
        own_s, token_s = await least(text[:characters], 2)
        [(length, _)] = InstantModel.asked
        facts.append((1, length))
        seconds.append(own_s)
        print(
            f"{length} tokens: {own_s * 1e3:.1f} ms, and the server {token_s * 1e3:.2f} ms a token"
        )
    per_call, per_token = np.linalg.lstsq(np.array(facts, float), np.array(seconds), rcond=None)[0]
    print(f"a call {per_call * 1e3:.1f} ms, a prompt token {per_token * 1e6:.1f} us")
    for limit in (2, 33, 65):
        await least(text[:2500], limit, times=1)
        print(f"up to {limit - 1} tokens: prompts and outputs of {InstantModel.asked}")


asyncio.run(main(sys.argv[2]))
