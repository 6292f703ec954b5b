"""Compare degrees of tensor parallelism on fake devices: python -m tests.engine.tp_checks.

A process of its own, because XLA must be told of the devices before it starts. Prints one JSON
object for each degree.
"""

import dataclasses
import json
import math
import re
import tempfile
from pathlib import Path

import jax
import numpy as np

import sgjax as sgl
from sgjax.engine import sampling
from sgjax.engine.vocab import Vocab
from sgjax.kernels.batch import Batch, Sampling
from sgjax.kernels.cpu import CpuAttention
from sgjax.kernels.reference import ReferenceAttention
from sgjax.kernels.sharded import ShardedAttention
from sgjax.models import llama, sharding
from sgjax.models.config import ModelConfig
from sgjax.models.weights import random_weights
from tests.engine.test_guess import ASKED, PLAIN, write_words
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


MIXTURE = dataclasses.replace(
    CONFIG, architecture="mixtral", qkv_bias=False, num_experts=4, experts_per_token=2
)


class Split:
    """The model on so many devices: one program for prefill and decode."""

    def __init__(self, degree: int, model: ModelConfig = CONFIG, platform: str = "cpu") -> None:
        mesh = sharding.make_mesh(degree)
        config = sharding.fit_config(model, degree)
        weights = sharding.fit_weights(random_weights(model, "float32", 0), model, config)
        self.weights = jax.device_put(weights, sharding.shardings(weights, mesh))
        pool = jax.sharding.NamedSharding(mesh, sharding.POOL)
        self.kv = llama.make_kv(config, 48, "float32", platform, pool)
        inner = CpuAttention(4) if platform == "cpu" else ReferenceAttention(4)
        attention = ShardedAttention(inner, mesh, sharding.TENSOR)

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


SETTINGS: dict[str, dict[str, object]] = {
    "greedy": {},
    "masked": {"mask_row": 1},
    "penalties": {"adjust": True},
    "warm": {"temperature": 0.9},
    "top_k": {"temperature": 0.9, "top_k": 5},
    "top_p": {"temperature": 1.5, "top_p": 0.8},
    "all": {
        "temperature": 1.2, "top_k": 40, "top_p": 0.9, "min_p": 0.02, "mask_row": 1, "adjust": True
    },
}  # fmt: skip
ROWS, IDS, REAL_IDS = 6, 4096, 4000


def sampled(degree: int) -> dict[str, list[list[float]]]:
    """Return, for each of SETTINGS, tokens and log-probabilities drawn on so many devices."""
    mesh = sharding.make_mesh(degree)
    vocab = Vocab() if degree == 1 else Vocab(mesh, sharding.TENSOR)
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 2, (ROWS, IDS)).astype(np.float32)
    logits[:, 700] = logits[:, 3000] = logits.max(axis=1)  # ties on different devices
    masks = rng.integers(0, 1 << 32, (2, IDS // 32), dtype=np.uint32)
    masks[0] = 0xFFFFFFFF

    @jax.jit
    @vocab.over_devices
    def run(logits, masks, how):
        logits = sampling.mask_padding(logits, REAL_IDS, vocab)
        token = sampling.sample(logits, masks, how, vocab)
        total = sampling.log_normalizer(logits, vocab)
        ids, best = sampling.top_logprobs(logits, total, 4, vocab)
        return token, vocab.at(logits, token[:, None])[:, 0] - total, ids, best

    found = {}
    for name, changes in SETTINGS.items():
        how = settings(rng if changes.get("adjust") else None, changes)
        found[name] = [np.asarray(x).tolist() for x in run(logits, masks, how)]
    if degree > 1:
        text = run.lower(logits, masks, how).compile().as_text()
        moved = re.findall(r"= (.*) all-[a-z]+\(", text)
        shapes = re.findall(r"\[([\d,]*)\]", " ".join(moved))
        found["largest_moved"] = max(math.prod(map(int, s.split(","))) for s in shapes if s)
    return found


def settings(rng: np.random.Generator | None, changes: dict[str, object]) -> Sampling:
    """Return how all rows sample: greedily but for the changes, each row with a seed of its own."""
    plain = {
        "temperature": 0.0, "top_k": IDS, "top_p": 1.0, "min_p": 0.0, "position": 7,
        "mask_row": 0, "wants_logprob": True,
    }  # fmt: skip
    values = {name: changes.get(name, value) for name, value in plain.items()}
    types = {bool: np.bool_, int: np.int32, float: np.float32}
    arrays = {n: np.full(ROWS, v, types[type(v)]) for n, v in values.items()}
    ids = np.zeros((ROWS, 64), np.int32) if rng is None else rng.integers(0, IDS, (ROWS, 64))
    return Sampling(
        **arrays,
        seed=np.arange(ROWS, dtype=np.uint32),
        adjust_ids=ids.astype(np.int32),
        adjust_mul=np.where(ids > 0, 1.3, 1).astype(np.float32),
        adjust_add=np.where(ids > 0, -0.5, 0).astype(np.float32),
    )


def engine_says(degree: int) -> dict[str, object]:
    """Return what a whole engine says: jumps and guesses, cascades, planned siblings at once."""
    stem = "The quick brown fox jumps over the lazy dog and the red one. "
    asked = [(stem + prompt, params) for prompt, params in (*ASKED[:9], *PLAIN[:2])]
    prompts, params = zip(*asked, strict=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        sgl.Engine(
            write_words(Path(folder)), dtype="float32", mesh={"tensor": degree}, attention="cpu",
            max_context_len=128, max_running=4, kv_tokens=1024, token_budget=64, page_size=4,
            siblings={"type": "share_planned"}, grammar={"jump": {"type": "tokens"}},
            shared_prefix={"type": "cascade", "min_tokens": 8, "min_queries": 2},
        ) as engine,
    ):  # fmt: skip
        results = engine.generate(list(prompts), list(params), return_logprob=True)
        info = engine.get_server_info()
        metas = [result["meta_info"] for result in results]
        return {
            "tokens": [result["output_ids"] for result in results],
            "logprobs": [[e[0] for e in meta["output_token_logprobs"]] for meta in metas],
            "guessed": info["guessed_tokens"],
            "forced": info["forced_tokens"],
        }


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
            said["mixture"] = Split(degree, MIXTURE).logits(0, prompt).tolist()
            said["engine"] = engine_says(degree)
            said["sampled"] = sampled(degree)
        if degree == 2:
            padded = Split(degree, platform="tpu")
            said["row"] = padded.kv.k[0].shape[1]
            said["padded"] = padded.logits(0, prompt).tolist()
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
