"""Our forward pass against transformers' in float32 (arrays made by tests/golden)."""

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

from sgjax.kernels import native
from sgjax.kernels.batch import Batch
from sgjax.kernels.select import select_attention
from sgjax.models import llama
from sgjax.models.config import ModelConfig
from sgjax.models.dense import select_dense
from sgjax.models.load import load_model
from sgjax.models.weights import from_tensors, tensor_shapes
from tests.golden import variations
from tests.kernels.ragged import Extend, pack

LOGITS = Path(__file__).parents[1] / "golden" / "logits"
TOLERANCE = 1e-4
"""Of the largest absolute logit."""

BACKENDS = ("cpu", "cpu_native") if native.find_compiler() else ("cpu",)


class Runner:
    """Feed one sequence to the forward pass, at most `chunk` tokens at a time."""

    def __init__(
        self,
        config: ModelConfig,
        weights: llama.LlamaWeights,
        backend: str,
        page: int,
        chunk: int,
        pages: int,
    ) -> None:
        attention = select_attention(backend, "cpu", page)
        dense = select_dense("auto", backend, config, devices=1)
        self.config, self.weights = config, dense.prepare(weights)
        self.page, self.chunk, self.pages = page, chunk, pages

        def run(weights, kv, batch):
            hidden, kv = llama.forward(config, weights, kv, batch, attention, dense)
            return llama.logits(config, weights, hidden[batch.logit_rows], dense=dense), kv

        self.step: Callable = jax.jit(run, donate_argnums=1)

    def logits(self, ids: NDArray[np.integer], positions: list[int]) -> NDArray[np.float32]:
        """Return f32[len(positions), V]."""
        block = min(self.chunk, 64)
        kv = llama.make_kv(self.config, (self.pages + 1) * self.page, "float32", "cpu")
        pages = tuple(range(1, self.pages + 1))
        out = {}
        for start in range(0, len(ids), self.chunk):
            end = min(start + self.chunk, len(ids))
            packed = pack(
                [Extend(pages, start, end)], self.page, 0, self.chunk // block, block, self.pages
            )
            tokens = np.zeros(self.chunk, np.int32)
            tokens[packed.places[0]] = ids[start:end]
            here = [p for p in positions if start <= p < end]
            rows = np.zeros(len(positions), np.int32)
            rows[: len(here)] = packed.places[0][np.array(here, int) - start]
            batch = Batch(
                tokens=tokens, layout=packed.layout, logit_rows=rows, targets=None, sampling=None
            )
            logits, kv = self.step(self.weights, kv, batch)
            out |= dict(zip(here, np.asarray(logits), strict=False))
        return np.stack([out[p] for p in positions])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", variations.CONFIGS)
def test_tiny_models_compute_what_transformers_computes(name: str, backend: str) -> None:
    config = ModelConfig.from_hf(variations.CONFIGS[name])
    shapes = tensor_shapes(config)
    weights = from_tensors(config, lambda key: variations.tensor(name, key, shapes[key]), "float32")
    runner = Runner(config, weights, backend, page=8, chunk=variations.NUM_TOKENS, pages=6)
    expected = np.load(LOGITS / "tiny.npz")[name]
    got = runner.logits(variations.tokens(name), list(range(variations.NUM_TOKENS)))
    assert np.abs(got - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.fixture(scope="module", params=BACKENDS)
def smollm2(request: pytest.FixtureRequest, smollm2_path: Path) -> Runner:
    model = load_model(str(smollm2_path), "float32")
    return Runner(model.config, model.weights, request.param, page=64, chunk=256, pages=24)


@pytest.mark.smollm2
@pytest.mark.parametrize("length", variations.SMOLLM2_LENGTHS)
def test_smollm2_computes_what_transformers_computes(smollm2: Runner, length: int) -> None:
    golden = np.load(LOGITS / "smollm2.npz")
    positions = variations.smollm2_positions(length)
    # Always four rows, so that one compilation serves all lengths.
    asked = [positions[min(i, len(positions) - 1)] for i in range(4)]
    got = smollm2.logits(golden["ids"][-length:], asked)[: len(positions)]
    top, top_ids = golden[f"top_{length}"], golden[f"top_ids_{length}"]
    limit = TOLERANCE * np.abs(top).max()
    projected = got @ variations.projection(got.shape[1])
    assert np.abs(np.take_along_axis(got, top_ids, axis=1) - top).max() <= limit
    assert np.abs(got[:, ::16] - golden[f"every_16th_{length}"]).max() <= limit
    assert np.abs(projected - golden[f"projected_{length}"]).max() <= limit
    assert (got.argmax(axis=1) == top_ids[:, 0]).all()
