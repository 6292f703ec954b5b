"""What a result must say of where it came from: code version, package versions, hashes.

Imports the standard library and sgjax's own version.
"""

import hashlib
import json
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sgjax import __version__

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


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
