"""Compare degrees of tensor parallelism on fake devices: python -m tests.engine.tp_checks.

A process of its own, because XLA must be told of the devices before it starts. Prints one JSON
object for each degree.
"""

import json
import re

import jax
import numpy as np

import sgjax as sgl
from sgjax.kernels.batch import Batch
from sgjax.kernels.cpu import CpuAttention
from sgjax.kernels.sharded import ShardedAttention
from sgjax.models import llama, sharding
from sgjax.models.config import ModelConfig
from sgjax.models.weights import random_weights
from tests.kernels.ragged import Extend, pack

CONFIG = ModelConfig(
    architecture="qwen2",
    vocab_size=61,  # to be padded
    hidden_size=32,
    num_layers=2,
    num_heads=8,
    num_kv_heads=2,  # fewer than most degrees
    head_dim=8,
    ffn_size=48,
    max_position=64,
    qkv_bias=True,
)
PROMPTS = ["one two three four", "one two three five", "something else"]


class Split:
    """The model on so many devices: one program for prefill and decode."""

    def __init__(self, degree: int) -> None:
        mesh = sharding.make_mesh(degree)
        config = sharding.fit_config(CONFIG, degree)
        weights = sharding.fit_weights(random_weights(CONFIG, "float32", 0), CONFIG, config)
        self.weights = jax.device_put(weights, sharding.shardings(weights, mesh))
        pool = jax.sharding.NamedSharding(mesh, sharding.POOL)
        self.kv = llama.make_kv(config, 48, "float32", "cpu", pool)
        attention = ShardedAttention(CpuAttention(4), mesh, sharding.TENSOR)

        def run(weights, kv, batch):
            hidden, kv = llama.forward(config, weights, kv, batch, attention)
            return llama.logits(config, weights, hidden), kv

        _, batch = self.batch(0, [1])
        jitted = jax.jit(run, donate_argnums=1)
        self.run = jitted.lower(self.weights, self.kv, batch).compile()

    def batch(self, start: int, ids: list[int]) -> tuple[np.ndarray, Batch]:
        """Return a batch of one sequence's tokens from `start` on, and where they are in it."""
        packed = pack([Extend((3, 9, 5, 2, 7, 4, 1, 8), start, start + len(ids))], 4, 2, 3, 8, 8)
        tokens = np.zeros(26, np.int32)
        tokens[packed.places[0]] = ids
        rest = {"logit_rows": None, "targets": None, "sampling": None}
        return packed.places[0], Batch(tokens=tokens, layout=packed.layout, **rest)

    def logits(self, start: int, ids: list[int]) -> np.ndarray:
        """Return f32[len(ids), V]."""
        at, batch = self.batch(start, ids)
        batch = jax.device_put(batch, self.run.input_shardings[0][2])
        out, self.kv = self.run(self.weights, self.kv, batch)
        return np.asarray(out)[at, : CONFIG.vocab_size]

    def all_reduces(self) -> int:
        """Return how many the program holds."""
        return len(re.findall(r"= \S+ all-reduce(?:-start)?\(", self.run.as_text()))


def engine_tokens(degree: int) -> list[list[int]]:
    """Return what a whole engine says, greedily."""
    with sgl.Engine(
        "random:tiny", dtype="float32", mesh={"tensor": degree}, max_context_len=128, max_running=4
    ) as engine:
        results = engine.generate(PROMPTS, {"max_new_tokens": 8, "temperature": 0})
        return [r["output_ids"] for r in results]


def main() -> None:
    """Print everything."""
    prompt = np.random.default_rng(1).integers(0, CONFIG.vocab_size, 16).tolist()
    for degree in (1, 2, 4, 8):
        model = Split(degree)
        values = model.logits(0, prompt)
        tokens = [int(values[-1].argmax())]
        for position in range(16, 28):
            tokens.append(int(model.logits(position, tokens[-1:])[0].argmax()))
        said = {
            "degree": degree,
            "logits": values.tolist(),
            "tokens": tokens,
            "all_reduces": model.all_reduces(),
        }
        if degree in (1, 4):
            said["engine"] = engine_tokens(degree)
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
