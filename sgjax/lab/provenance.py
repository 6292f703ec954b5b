"""What a result must say of where it came from: code version, package versions, hashes.

Imports the standard library and sgjax's own version.
"""

import hashlib
import json
import platform
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sgjax import __version__

SHOWN = ("claim", "expect", "reference", "figure", "metrics")
"""Keys of an experiment that decide how results are judged and shown, and no result."""
PACKAGES = ("jax", "jaxlib", "flax", "numpy", "tokenizers")


def git_sha() -> str | None:
    """Return the commit of the checkout that sgjax runs from, or None outside a checkout.

    `+changes` marks a checkout whose tracked files differ from the commit.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    sha = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{sha}+changes" if sha and changed else sha


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that can change a result."""
    found = {"python": platform.python_version(), "sgjax": __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed as a package"
    return found


def digest(data: Any) -> str:
    """Return 12 hexadecimal digits that identify plain data."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def run_hash(config: Mapping[str, Any]) -> str:
    """Return a digest of what decides an experiment's results.

    Args:
        config: `experiment`, resolved, and `files` of the user's own that it runs (see
            `own_files`), as a record has them.
    """
    deciding = {k: v for k, v in config["experiment"].items() if k not in SHOWN}
    return digest({"experiment": deciding, "files": config.get("files", {})})


def own_files(settings: Any) -> dict[str, str]:
    """Return the digest of every Python file that settings name, by its path as they write it."""
    return dict(_own_files(settings))


def _own_files(settings: Any) -> Iterator[tuple[str, str]]:
    if isinstance(settings, Mapping):
        file = settings.get("file")
        if settings.get("type") == "python" and isinstance(file, str) and Path(file).is_file():
            yield file, hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]
        settings = list(settings.values())
    if isinstance(settings, list | tuple):
        for value in settings:
            yield from _own_files(value)


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
