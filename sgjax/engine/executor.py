"""JaxExecutor: the only owner of device arrays; runs plans as jitted steps.

DEVICE. Imports jax, kernels, models, schedule and its neighbours. The K/V pool is donated to every
step and replaced by what comes back, so it exists once.
"""

import time
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

from sgjax.engine.config import SharedPrefixSpec
from sgjax.engine.hosts import Hosts, RunStep, WriteMasks, hear
from sgjax.engine.large_pages import use_large_pages
from sgjax.engine.masks import ALONE, MaskTable
from sgjax.engine.pack import Ladder, Shape, dummy_batch, pack, sample_places
from sgjax.engine.step import StepArrays, step
from sgjax.engine.vocab import Vocab
from sgjax.kernels.base import Attention
from sgjax.kernels.batch import Batch
from sgjax.models.config import ModelConfig
from sgjax.models.layer import Dense, LlamaWeights
from sgjax.models.llama import make_kv
from sgjax.models.sharding import POOL, TENSOR
from sgjax.schedule import Plan, StepOutput

# One jitted function for all executors: engines of the same model share its compiled programs.
_STEP = jax.jit(
    step,
    static_argnames=("config", "attention", "top", "valid_vocab", "dense", "vocab"),
    donate_argnames=("kv",),
)


@dataclass(frozen=True)
class Submitted:
    """A step on its way.

    Attributes:
        plan: what was submitted.
        shape: the shape it was packed into.
        arrays: the step's results, perhaps still being computed.
        started_s: when it was submitted.
    """

    plan: Plan
    shape: Shape
    arrays: StepArrays
    started_s: float


class JaxExecutor:
    """Run plans on JAX's default device, or on a mesh of devices.

    Args:
        config: the model.
        weights: its weights, prepared for `dense`.
        attention: the attention backend, chosen once.
        dense: the backend of all products, chosen once.
        shared_prefix: whether steps attend once to what their sequences share.
        ladder: the shapes steps are packed into.
        num_pages: N pages of K/V.
        page_size: S tokens a page.
        kv_dtype: "float32" or "bfloat16".
        valid_vocab: ids below it may be sampled (rule 11).
        masks: the masks of grammars.
        mesh: devices that weights and K/V are split over; None is the default device.
        hosts: processes that run the same steps.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: LlamaWeights,
        attention: Attention,
        dense: Dense,
        shared_prefix: SharedPrefixSpec,
        ladder: Ladder,
        num_pages: int,
        page_size: int,
        kv_dtype: str,
        valid_vocab: int,
        masks: MaskTable,
        mesh: Mesh | None = None,
        hosts: Hosts = ALONE,
    ) -> None:
        self._config = config
        self._weights = weights
        self._ladder = ladder
        self._page_size = page_size
        self._platform = jax.default_backend()
        pool = None if mesh is None else NamedSharding(mesh, POOL)
        self._kv = make_kv(config, num_pages * page_size, kv_dtype, self._platform, pool)
        self.page_bytes = sum(x.nbytes for x in jax.tree.leaves(self._kv)) // num_pages
        """Bytes that a page takes, over all layers and devices."""
        if self._platform == "cpu":
            use_large_pages(weights)
        self._masks = masks
        self._hosts = hosts
        self._attention = attention
        self._dense = dense
        self._vocab = Vocab() if mesh is None else Vocab(mesh, TENSOR)
        self._shared_prefix = shared_prefix
        self._valid_vocab = valid_vocab
        self.shapes: dict[Shape, float] = {}
        """Shapes run so far, and the seconds their first run took (compilation included)."""

    @property
    def kind(self) -> str:
        """Return `cpu`, `gpu` or `tpu`."""
        return self._platform

    def now(self) -> float:
        """Return seconds on a monotonic clock."""
        return time.perf_counter()

    def warm_up(self) -> None:
        """Compile every shape of the ladder that plain requests can need."""
        for shape in self._ladder.warmup_shapes():
            batch = dummy_batch(shape, self._config.vocab_size)
            self._run(shape, batch)

    def submit(self, plan: Plan) -> Submitted:
        """Start a step."""
        started_s = self.now()
        shape, batch = pack(
            plan,
            self._ladder,
            self._page_size,
            self._config.vocab_size,
            self._shared_prefix,
            self._masks.rows(plan),
        )
        return Submitted(plan, shape, self._run(shape, batch), started_s)

    def wait(self, ticket: Submitted) -> StepOutput:
        """Return the step's output when it is done."""
        arrays: Any = jax.device_get(ticket.arrays)  # the same structure, in numpy
        places = sample_places(ticket.plan, ticket.shape)
        num_targets = sum(len(row.targets) for row in ticket.plan.rows)
        return StepOutput(
            next_token=arrays.next_token[places],
            logprob=arrays.logprob[places],
            log_mass=arrays.log_mass[places],
            top_ids=arrays.top_ids[places],
            top_logprobs=arrays.top_logprobs[places],
            target_logprob=arrays.target_logprob[:num_targets],
            target_top_ids=arrays.target_top_ids[:num_targets],
            target_top_logprobs=arrays.target_top_logprobs[:num_targets],
            device_s=self.now() - ticket.started_s,
        )

    def follow(self) -> None:
        """Run what process 0 tells until it is done."""
        while (order := hear()) is not None:
            match order:
                case WriteMasks(rows, at):
                    self._masks.write(rows, at)
                case RunStep(shape, batch):
                    self._run(shape, batch)

    def release(self) -> None:
        """Free all arrays, and let the processes that follow this one end; nothing runs later.

        Who keeps an engine that is shut down keeps no memory of its weights and K/V.
        """
        hosts, self._hosts = self._hosts, ALONE
        hosts.tell(None)
        for array in jax.tree.leaves((self._weights, self._kv, self._masks.array)):
            array.delete()

    def _run(self, shape: Shape, batch: Batch) -> StepArrays:
        started_s = self.now()
        self._hosts.tell(RunStep(shape, batch))
        arrays: StepArrays
        self._kv, arrays = _STEP(
            self._config,
            self._weights,
            self._kv,
            self._masks.array,
            batch,
            attention=self._attention,
            dense=self._dense,
            vocab=self._vocab,
            top=shape.top,
            valid_vocab=self._valid_vocab,
        )
        if shape not in self.shapes:
            arrays.next_token.block_until_ready()
            self.shapes[shape] = self.now() - started_s
        return arrays
