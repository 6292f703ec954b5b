"""Named settings that stand for other systems in the paper's figures: configs/baselines.

Imports shipped and typed. Each file says which system, why its settings are as they are, and holds
engine settings and language options as an experiment's variant would.
"""

from dataclasses import dataclass
from typing import Any

from sgjax.errors import ConfigError
from sgjax.shipped import shipped
from sgjax.typed import FORBID_EXTRA, load_yaml, nearest, validate


@dataclass(frozen=True)
class Baseline:
    """Another system, as settings of the same simulator.

    Attributes:
        summary: the system and its version.
        settings: engine settings, and `language`.
    """

    __pydantic_config__ = FORBID_EXTRA
    summary: str
    settings: dict[str, Any]


def baseline_names() -> list[str]:
    """Return the names of all baselines that ship with sgjax, sorted."""
    return sorted(path.stem for path in shipped("baselines").glob("*.yaml"))


def load_baseline(name: str) -> dict[str, Any]:
    """Return a baseline's settings.

    Raises:
        ConfigError: the name is unknown (the message gives the nearest), or its file is wrong.
    """
    names = baseline_names()
    if name not in names:
        raise ConfigError(f"unknown baseline {name!r}; {nearest(str(name), names)}")
    path = shipped("baselines") / f"{name}.yaml"
    return validate(Baseline, load_yaml(path), str(path)).settings
