"""Where the YAML files lie that ship with sgjax. Imports the standard library only.

In a checkout (also an editable install) `configs/` and `experiments/` stand beside the package; a
wheel carries them inside (see setup.py).
"""

from pathlib import Path


def shipped(kind: str) -> Path:
    """Return the folder of `configs/` that holds files of one kind.

    Args:
        kind: a folder's name, such as "models" or "hardware".
    """
    return _folder("configs") / kind


def shipped_experiments() -> Path:
    """Return the folder of the experiments that ship with sgjax."""
    return _folder("experiments")


def _folder(name: str) -> Path:
    package = Path(__file__).parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name
