"""Where the YAML files lie that ship with sgjax. Imports errors.

In a checkout (also an editable install) `configs/` and `experiments/` stand beside the package; a
wheel carries them inside (see setup.py).
"""

import difflib
from pathlib import Path

from sgjax.errors import ConfigError


def shipped(kind: str) -> Path:
    """Return the folder of `configs/` that holds files of one kind.

    Args:
        kind: a folder's name, such as "models" or "hardware".
    """
    return _folder("configs") / kind


def shipped_experiments() -> Path:
    """Return the folder of the experiments that ship with sgjax."""
    return _folder("experiments")


def find_experiment(name: str) -> Path:
    """Return the file of an experiment.

    Args:
        name: a path; or the name alone of one that ships, such as "starvation".

    Raises:
        ConfigError: it is neither.
    """
    path, folder = Path(name), shipped_experiments()
    if path.exists():
        return path
    if name == path.stem and (folder / f"{name}.yaml").is_file():
        return folder / f"{name}.yaml"
    near = difflib.get_close_matches(path.stem, [file.stem for file in folder.glob("*.yaml")], n=1)
    hint = f"did you mean {near[0]!r}, which ships?" if near else "check the path"
    raise ConfigError(
        f"no such file: {name}; {hint} `sgjax experiments list` has those that run by name"
    )


def _folder(name: str) -> Path:
    package = Path(__file__).parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name
