"""Roofline: what a step costs on a device, from its bytes and floating-point operations.

HOST. Imports schedule's Plan, models.config and sim.hardware. For a step of T new tokens::

    products    max(2 T weights / flops, bytes of the weights that are touched / bandwidth)
    attention   max(4 H D (new tokens x their contexts) / flops, K/V bytes moved / bandwidth)
    collectives two all-reduces a layer, where the model is split over devices
    overhead    a constant a step and a constant a layer

Weights are read once a step whatever T is: the reason why batching pays. Cached tokens cost no
products but are read by attention: the reason why reuse pays, and where it ends.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from sgjax.errors import ConfigError
from sgjax.models.config import DTYPE_BYTES, ModelConfig
from sgjax.schedule import Plan
from sgjax.sim.hardware import Hardware


@dataclass(frozen=True)
class Work:
    """What a step asks for, before any device is chosen.

    Attributes:
        tokens: new tokens.
        sampled: positions whose logits are needed.
        pairs: (new token, token it attends to) pairs over all rows, of one layer.
        context: tokens whose K/V is read, a row's context counted once.
    """

    tokens: int
    sampled: int
    pairs: int
    context: int

    @classmethod
    def of(cls, plan: Plan, pads: bool = False) -> "Work":
        """Return a plan's work; `pads` makes all prompts as long as the longest for products."""
        sampled = pairs = context = 0
        for _, start, end, sample, logprob_from, guesses in plan.rows:
            new = end - start
            pairs += new * start + new * (new + 1) // 2
            context += end
            sampled += new if logprob_from >= 0 else sample + len(guesses)
        tokens = plan.num_tokens
        if pads:
            prompts = [row.end for row in plan.rows if row.start == 0]
            tokens += len(prompts) * max(prompts, default=0) - sum(prompts)
        return cls(tokens, sampled, pairs, context)


class Roofline:
    """Seconds a step takes; a `Cost`.

    Args:
        model: its architecture.
        hardware: the device, one of `tensor` equal ones.
        dtype: of weights and activations.
        kv_dtype: of keys and values.
        tensor: devices each weight matrix and the K/V heads are split over.
        pads: whether the prompts of a step are padded to the longest.

    Raises:
        ConfigError: an unknown dtype, or more devices than heads.
    """

    def __init__(
        self,
        model: ModelConfig,
        hardware: Hardware,
        dtype: str,
        kv_dtype: str,
        tensor: int = 1,
        pads: bool = False,
    ) -> None:
        if dtype not in DTYPE_BYTES:
            raise ConfigError(f"dtype {dtype!r} is not supported; allowed: {list(DTYPE_BYTES)}")
        if not 1 <= tensor <= model.num_heads:
            raise ConfigError(f"tensor={tensor} is not allowed; 1 to {model.num_heads} (heads)")
        E, self._layers = model.hidden_size, model.num_layers
        self._model, self._hardware, self._tensor = model, hardware, tensor
        self._pads = pads
        self._size = DTYPE_BYTES[dtype]
        self._attention_weights = E * (2 * model.q_size + 2 * model.kv_size)
        self._expert_weights = 3 * E * model.ffn_size
        self._head_weights = E * model.vocab_size
        self._pair_flops = 4 * model.q_size * model.num_layers
        self._kv_bytes = hardware.token_bytes(model, kv_dtype, tensor)
        self._flops = hardware.matmul_flops * hardware.matmul_efficiency * tensor
        self._bandwidth = hardware.memory_bytes_per_s * hardware.memory_efficiency * tensor
        self._fixed_s = hardware.step_s + model.num_layers * hardware.layer_s

    def __call__(self, plan: Plan) -> float:
        """Return the seconds a step takes."""
        return self.seconds(Work.of(plan, self._pads))

    def repeated(self, plan: Plan) -> Iterator[float]:
        """Yield the seconds of a plan of decodes and of each repetition, a token later."""
        work = Work.of(plan)
        products_s, links_s = self._products_s(work), self._links_s(work)
        for further in count(0, work.tokens):
            attention_s = self._attention_s(work, further)
            yield products_s + attention_s + links_s + self._fixed_s

    def seconds(self, work: Work) -> float:
        """Return the seconds that work takes in one step."""
        return (
            self._products_s(work) + self._attention_s(work) + self._links_s(work) + self._fixed_s
        )

    def _products_s(self, work: Work) -> float:
        model = self._model
        used, touched = 1.0, 1.0
        if model.num_experts:
            # Each token picks its experts evenly and by itself.
            missed = (1 - model.experts_per_token / model.num_experts) ** work.tokens
            used, touched = model.experts_per_token, model.num_experts * (1 - missed)
        active = self._layers * (self._attention_weights + used * self._expert_weights)
        read = self._layers * (self._attention_weights + touched * self._expert_weights)
        flops = 2 * (active * work.tokens + self._head_weights * work.sampled)
        read += self._head_weights * (work.sampled > 0)
        return max(flops / self._flops, read * self._size / self._bandwidth)

    def _attention_s(self, work: Work, further: int = 0) -> float:
        flops = self._pair_flops * (work.pairs + further)
        moved = self._kv_bytes * (work.context + further + work.tokens)
        return max(flops / self._flops, moved / self._bandwidth)

    def _links_s(self, work: Work) -> float:
        n, hardware = self._tensor, self._hardware
        if n == 1:
            return 0.0
        share = 2 * (n - 1) / n  # of the data, by a ring's reduce-scatter and all-gather
        data = work.tokens * self._model.hidden_size * self._size
        return 2 * self._layers * (share * data / hardware.link_bytes_per_s + hardware.link_s)


def fitting_kv_tokens(
    model: ModelConfig, hardware: Hardware, dtype: str, kv_dtype: str, tensor: int = 1
) -> int:
    """Return how many tokens of K/V the devices hold beside the weights.

    Raises:
        ConfigError: the weights alone do not fit.
    """
    room = hardware.memory_bytes * hardware.usable_memory * tensor
    room -= model.param_count * DTYPE_BYTES[dtype]
    tokens = int(room // hardware.token_bytes(model, kv_dtype, tensor))
    if tokens < 1:
        raise ConfigError(
            f"the model's weights ({model.param_count * DTYPE_BYTES[dtype] / 1e9:.1f} GB) do not "
            f"fit into {tensor} x {hardware.summary}; use more devices (tensor) or a smaller model"
        )
    return tokens
