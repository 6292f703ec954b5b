"""Hardware: what the cost model knows of a device, from configs/hardware.

HOST. Imports errors, typed, shipped and models.config. The YAML files give a public source for
each constant that has one; the others are free and are marked so there.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from sgjax.errors import ConfigError
from sgjax.models.config import ModelConfig
from sgjax.shipped import shipped
from sgjax.typed import FORBID_EXTRA, load_yaml, nearest, validate


@dataclass(frozen=True)
class Hardware:
    """One device.

    Attributes:
        summary: its name for people.
        memory_bytes: device memory.
        matmul_flops: dense 16-bit matrix products, floating-point operations a second at best.
        memory_bytes_per_s: bandwidth of the device memory at best.
        link_bytes_per_s: to other devices, one way.
        usable_memory: share of the memory for weights and K/V; the rest is for activations.
        matmul_efficiency: share of `matmul_flops` that is reached.
        memory_efficiency: share of `memory_bytes_per_s` that is reached.
        step_s: a step's fixed cost: launches, host, sampling.
        layer_s: the same for each layer.
        link_s: latency of one collective.
        kv_lanes: a device keeps its keys of a token, and its values, in whole runs of so many
            elements.
    """

    __pydantic_config__ = FORBID_EXTRA
    summary: str
    memory_bytes: float
    matmul_flops: float
    memory_bytes_per_s: float
    link_bytes_per_s: float
    usable_memory: float
    matmul_efficiency: float
    memory_efficiency: float
    step_s: float
    layer_s: float
    link_s: float
    kv_lanes: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is float and not 0 <= value < math.inf:
                raise ConfigError(f"hardware: {field.name}={value}; it must be 0 or more")
        for name in ("memory_bytes", "matmul_flops", "memory_bytes_per_s", "link_bytes_per_s"):
            if not getattr(self, name):
                raise ConfigError(f"hardware: {name}=0; it must be above 0")
        for name in ("usable_memory", "matmul_efficiency", "memory_efficiency"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(f"hardware: {name}={getattr(self, name)}; it must be in (0, 1]")
        if self.kv_lanes < 1:
            raise ConfigError(f"hardware: kv_lanes={self.kv_lanes}; it must be 1 or more")

    def token_bytes(self, model: ModelConfig, kv_dtype: str, tensor: int = 1) -> int:
        """Return the bytes that K and V of one token take over all layers and devices.

        Args:
            model: the architecture.
            kv_dtype: "float32" or "bfloat16".
            tensor: devices that heads are split over.
        """
        grain = tensor * self.kv_lanes
        row = -(-model.kv_size // grain) * grain
        return model.kv_bytes_per_token(kv_dtype) // model.kv_size * row


def hardware_names() -> list[str]:
    """Return the names of all devices that ship with sgjax, sorted."""
    return sorted(path.stem for path in shipped("hardware").glob("*.yaml"))


def load_hardware(name: str) -> Hardware:
    """Read one device's constants.

    Raises:
        ConfigError: the name is unknown (the message gives the nearest), or its file is wrong.
    """
    names = hardware_names()
    if name not in names:
        raise ConfigError(f"unknown hardware {name!r}; {nearest(name, names)}")
    path = shipped("hardware") / f"{name}.yaml"
    return validate(Hardware, load_yaml(path), str(path))


def with_constants(hardware: Hardware, constants: Mapping[str, float]) -> Hardware:
    """Return a device with some of its constants replaced.

    Raises:
        ConfigError: there is no such constant, or its value is not allowed.
    """
    names = [field.name for field in fields(hardware) if field.type is float]
    for name in constants:
        if name not in names:
            raise ConfigError(f"constants: unknown constant {name!r}; {nearest(name, names)}")
    return replace(hardware, **constants)  # type: ignore[arg-type]  # all of them are floats
