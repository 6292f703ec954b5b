"""Where the YAML files lie that ship with sgjax. Imports the standard library only."""

from pathlib import Path


def shipped(kind: str) -> Path:
    """Return the folder of `configs/` that holds files of one kind.

    In a checkout (also an editable install) `configs/` stands beside the package; a wheel carries
    it inside (see setup.py).

    Args:
        kind: "models", "hardware" or "engine".
    """
    package = Path(__file__).parent
    inside = package / "configs"
    return (inside if inside.is_dir() else package.parent / "configs") / kind
