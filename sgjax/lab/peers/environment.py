"""Virtual environments for peers, one a set of requirements, so that pins do not clash.

Imports filelock, provenance and `errors`. They lie in a folder of the user's cache and are kept.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from sgjax.errors import UnsupportedBackend
from sgjax.lab.provenance import digest

DONE = ".complete"


def environment(requires: tuple[str, ...], folder: Path, say: Callable[[str], None]) -> Path:
    """Return the Python of an environment that holds requirements, made on first use.

    Args:
        requires: as pip takes them.
        folder: where environments lie.
        say: told what takes long.

    Raises:
        UnsupportedBackend: they cannot be installed here; the reason is pip's.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    target = folder / f"env-{digest([*requires, version])}"
    python = target / "bin" / "python"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if not (target / DONE).exists():
            shutil.rmtree(target, ignore_errors=True)  # of an attempt that was cut off
            say(f"installing {', '.join(requires)} into {target}")
            _run([sys.executable, "-m", "venv", str(target)], requires)
            _run([str(python), "-m", "pip", "install", "--quiet", "numpy", *requires], requires)
            (target / DONE).touch()
    return python


def _run(command: list[str], requires: tuple[str, ...]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line or "Error" in line]
        reason = (lines or done.stderr.splitlines() or ["no reason given"])[-1].strip()
        raise UnsupportedBackend(
            f"{', '.join(requires)} cannot be installed for {sys.executable}: {reason}; give a "
            "Python that has it with --peer NAME=PYTHON"
        )
