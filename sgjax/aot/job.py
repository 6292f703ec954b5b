"""What is to be compiled and what came of it, as both sides of the subprocess see it. HOST.

Imports errors.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from sgjax.errors import ConfigError

STEPS: dict[str, tuple[int, int, int]] = {
    "decode": (64, 0, 1),
    "extend": (16, 16, 16),
    "prefill": (0, 16, 64),
}
"""(D, G, BQ) of each step: decode alone, short extends beside decode, a chunk of 1,024 tokens."""


@dataclass(frozen=True)
class Job:
    """One program for one target.

    Attributes:
        target: name of a target.
        model: a preset.
        step: one of STEPS, or "kernel" for attention alone, at the decode step's shape.
        tensor: devices that share every layer.
        page_size: S.
        context: tokens of the longest sequence.
        kv_tokens: K/V pool; 0 takes what the weights leave.
        num_layers: layers compiled, of a "kernel" one; 0 is all. Memory is reckoned for all.
        dtype: of weights, activations and K/V.
        heads: (H, K, D) of a "kernel" that are not the preset's; empty takes the preset's.
        tile: settings of the kernel that differ from its defaults.
    """

    target: str
    model: str
    step: str
    tensor: int = 1
    page_size: int = 16
    context: int = 4096
    kv_tokens: int = 0
    num_layers: int = 0
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    heads: tuple[int, ...] = ()
    tile: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        allowed = ("kernel", *STEPS)
        if self.step not in allowed:
            raise ConfigError(f"step={self.step!r} is not allowed; use {', '.join(allowed)}")
        least = {"tensor": 1, "page_size": 1, "context": 1, "kv_tokens": 0, "num_layers": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if value < low:
                raise ConfigError(f"{name}={value} is not allowed; it must be at least {low}")


@dataclass(frozen=True)
class Verdict:
    """What the compiler said.

    Attributes:
        job: what was asked.
        status: "fits"; "too big" where it compiles, but memory does not suffice; "rejected" by the
            compiler (or it died); "absent" where the compiler is not installed.
        reason: why it is not "fits".
        weights_bytes, kv_bytes, temp_bytes: on each device, all layers.
        kv_tokens: tokens the K/V pool holds.
        alias_bytes: memory that the program updates in place, of the layers compiled.
        compiled_kv_bytes: K/V of the layers compiled.
        num_layers: that were compiled.
        layer_collectives: in the layers of the program, by kind.
        other_collectives: outside them: embedding, head, sampling.
        largest_other: elements that the largest of those moves.
        kernels: calls of the paged kernel in the program.
        registers, spills, shared_bytes: of the paged kernel, the worst of them; -1 is unknown.
        seconds: it took.
        versions: of the compilers.
    """

    job: Job
    status: Literal["fits", "too big", "rejected", "absent"]
    reason: str = ""
    weights_bytes: int = 0
    kv_bytes: int = 0
    temp_bytes: int = 0
    kv_tokens: int = 0
    alias_bytes: int = 0
    compiled_kv_bytes: int = 0
    num_layers: int = 0
    layer_collectives: dict[str, int] = field(default_factory=dict)
    other_collectives: int = 0
    largest_other: int = 0
    kernels: int = 0
    registers: int = -1
    spills: int = -1
    shared_bytes: int = -1
    seconds: float = 0.0
    versions: dict[str, Any] = field(default_factory=dict)
