"""build_simulator: a SimExecutor and its sizes from what YAML says.

HOST. Imports models.config, schedule's protocol, tokens and its neighbours.
"""

from dataclasses import dataclass, field
from typing import Literal

from sgjax.errors import ConfigError
from sgjax.models.config import ModelConfig
from sgjax.sim.calls import CallCost, CallSpec
from sgjax.sim.constrained import keep_constraints
from sgjax.sim.entrance import TokenizerAndPause
from sgjax.sim.executor import Cost, SimExecutor
from sgjax.sim.hardware import Hardware, load_hardware, with_constants
from sgjax.sim.masks import with_masks
from sgjax.sim.outputs import FullLengths, Lengths, speak
from sgjax.sim.roofline import Roofline, fitting_kv_tokens
from sgjax.tokens.base import Tokenizer
from sgjax.typed import FORBID_EXTRA, refuse_negative


@dataclass(frozen=True)
class SimSpec:
    """Steps cost simulated time on a modelled device; tokens come from a script.

    Attributes:
        hardware: a name in configs/hardware.
        constants: constants of the hardware by name, instead of the file's: slower software on the
            same device, or a fit.
        model: preset whose architecture is simulated; None takes the engine's `model`.
        tensor: devices that each layer is split over.
        lengths: how long unconstrained outputs are.
        tokenizer: "bytes", or whose vocabulary counts the tokens: a preset, .gguf file, or a folder
            that holds a tokenizer.
        vocab_size: only so many of its first tokens, as if its training had stopped there
            (byte-level vocabularies); None takes all.
        settle_s: real seconds in which no program may have spoken before time goes on: simulated
            steps take no time, so programs need a moment to answer what they heard.
        compile_s: simulated seconds that the host compiles a constraint, before which no further
            step begins.
        mask_s: simulated seconds that the host takes for a constrained token whose mask allows the
            whole vocabulary, before it is sampled; other masks take their share of it.
        pause_s: simulated seconds after a step before the queue is looked at, if a request has
            ended: SGLang's first releases wait so for requests that depend on it (0.03 s,
            `extend_dependency_time` of their backend_config.py).
        tokenize_s: simulated seconds for each token of a prompt, before its request is seen: a
            server's one tokenizer process takes requests one after another.
        calls: what calls cost beside their steps in a system above the model's server.
        pads: whether a step costs the products of prompts that are padded to its longest.
        logprobs: "refused": requests that want log-probabilities are, as nothing computes them;
            "zero": each is 0, so that `select` always takes its first choice, at its right cost.
    """

    __pydantic_config__ = FORBID_EXTRA
    hardware: str
    type: Literal["sim"] = "sim"
    model: str | None = None
    tensor: int = 1
    lengths: Lengths = field(default_factory=FullLengths)
    tokenizer: str = "bytes"
    vocab_size: int | None = None
    settle_s: float = 0.002
    constants: dict[str, float] = field(default_factory=dict)
    compile_s: float = 0.0
    mask_s: float = 0.0
    pause_s: float = 0.0
    tokenize_s: float = 0.0
    calls: CallSpec = field(default_factory=CallSpec)
    pads: bool = False
    logprobs: Literal["refused", "zero"] = "refused"

    def __post_init__(self) -> None:
        if self.tensor < 1:
            raise ConfigError(f"tensor={self.tensor} is not allowed; it must be >= 1")
        if self.vocab_size is not None and self.vocab_size < 1:
            raise ConfigError(f"vocab_size={self.vocab_size} is not allowed; it must be >= 1")
        if self.vocab_size is not None and self.tokenizer == "bytes":
            raise ConfigError(
                f"vocab_size={self.vocab_size} is not allowed with tokenizer: bytes; name another "
                "tokenizer, or leave it out"
            )
        refuse_negative(
            settle_s=self.settle_s,
            compile_s=self.compile_s,
            mask_s=self.mask_s,
            pause_s=self.pause_s,
            tokenize_s=self.tokenize_s,
        )


@dataclass(frozen=True)
class Simulator:
    """A simulated device.

    Attributes:
        executor: runs plans on its virtual clock.
        entrance: what requests pass before they wait.
        cost: what a step of decoding costs there, for macro-steps; None where calls cost more.
        hardware: what is simulated.
        token_bytes: what K and V of a token take.
        kv_tokens: tokens of K/V that fit beside the weights.
    """

    executor: SimExecutor
    entrance: TokenizerAndPause
    cost: Roofline | None
    hardware: Hardware
    token_bytes: int
    kv_tokens: int


def build_simulator(
    spec: SimSpec, model: ModelConfig, tokenizer: Tokenizer, dtype: str, kv_dtype: str, seed: int
) -> Simulator:
    """Return the simulator of a model on a device.

    Args:
        spec: the device, and how the model answers.
        model: the architecture.
        tokenizer: of the texts that the simulated model answers with.
        dtype: of weights and activations.
        kv_dtype: of keys and values.
        seed: of output lengths and of constrained texts.

    Raises:
        ConfigError: unknown hardware or constant, or weights that do not fit.
    """
    hardware = with_constants(load_hardware(spec.hardware), spec.constants)
    roofline = Roofline(model, hardware, dtype, kv_dtype, spec.tensor, spec.pads)
    token_bytes = hardware.token_bytes(model, kv_dtype, spec.tensor)
    fitting = fitting_kv_tokens(model, hardware, dtype, kv_dtype, spec.tensor)
    script = keep_constraints(speak(tokenizer, spec.lengths, seed), tokenizer, seed)
    cost: Cost = roofline
    if spec.mask_s:
        cost = with_masks(cost, spec.mask_s, tokenizer.vocab_size)
    is_plain = spec.calls == CallSpec()
    if not is_plain:
        cost = CallCost(cost, roofline, spec.calls)
    executor = SimExecutor(script, cost)
    entrance = TokenizerAndPause(executor, spec.tokenize_s, spec.pause_s, spec.calls)
    macro = roofline if is_plain else None
    return Simulator(executor, entrance, macro, hardware, token_bytes, fitting)
