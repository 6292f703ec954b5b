"""Targets: devices to compile for, from configs/targets. HOST; imports errors, typed, shipped."""

from dataclasses import dataclass, field
from typing import Literal

from sgjax.errors import ConfigError
from sgjax.shipped import shipped
from sgjax.typed import FORBID_EXTRA, load_yaml, nearest, validate

ALIASES = {"sm_80": "a100-80g", "sm_86": "a10g", "sm_90": "h100"}
"""Compute capabilities, by a device that has them."""


@dataclass(frozen=True)
class Target:
    """A kind of device.

    Attributes:
        summary: its name for people.
        platform: whose compiler.
        memory_bytes: of one device.
        usable_memory: share of it for weights, K/V and temporaries.
        description: XLA's description of a GPU, a GpuTargetConfigProto in text.
        topologies: of TPUs, by the number of chips.
    """

    __pydantic_config__ = FORBID_EXTRA
    summary: str
    platform: Literal["cuda", "tpu"]
    memory_bytes: float
    usable_memory: float
    description: str = ""
    topologies: dict[int, str] = field(default_factory=dict)

    def topology(self, devices: int) -> str:
        """Return the smallest topology of at least so many devices.

        Raises:
            ConfigError: there is none.
        """
        if self.platform == "cuda":
            return f"1x1x{devices}"
        fitting = [n for n in sorted(self.topologies) if n >= devices]
        if not fitting:
            raise ConfigError(
                f"{devices} chips are asked for; allowed: 1 to {max(self.topologies)}"
            )
        return self.topologies[fitting[0]]


def target_names() -> list[str]:
    """Return the names of all targets, sorted."""
    return sorted(path.stem for path in shipped("targets").glob("*.yaml"))


def load_target(name: str) -> Target:
    """Read one target.

    Raises:
        ConfigError: the name is unknown, or its file is wrong.
    """
    name = ALIASES.get(name, name)
    if name not in target_names():
        known = [*target_names(), *ALIASES]
        raise ConfigError(f"unknown target {name!r}; {nearest(name, known)}")
    path = shipped("targets") / f"{name}.yaml"
    return validate(Target, load_yaml(path), str(path))
