"""C++ kernels through XLA's foreign function interface: build, cache, load, register.

Imports jax.ffi, platformdirs and errors. The library is compiled when it is first asked for,
against the headers that come with jaxlib, into the user's cache folder; its file's name is a hash
of everything it was made from, so an old one is never used for a new source, jaxlib or compiler.
It holds the kernels for every instruction set of the processor family; which of them run is decided
when it is loaded.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import jax
import platformdirs

from sgjax.errors import UnsupportedBackend

COMPILERS = ("c++", "g++", "clang++")
ATTENTION, BEFORE, AFTER, LOGITS = TARGETS = (
    "sgjax_paged_attention",
    "sgjax_before",
    "sgjax_after",
    "sgjax_logits",
)
"""The calls, by the names XLA knows them by."""
ISAS = ("generic", "avx2", "avx512", "avx512_bf16")
"""Instruction sets, worst first, as the drivers number them."""

_FLAGS = ["-std=c++17", "-O3", "-fPIC", "-fno-math-errno", "-w"]
_LANES = {"generic": 4, "avx2": 8, "avx512": 16, "avx512_bf16": 16}
_AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"]
_MACHINE = {
    "generic": [],
    "avx2": ["-mavx2", "-mfma"],
    "avx512": _AVX512,
    "avx512_bf16": [*_AVX512, "-mavx512bf16", "-mavx512vnni"],
}


def find_compiler() -> str | None:
    """Return the path of a C++ compiler, or None."""
    return next((path for name in COMPILERS if (path := shutil.which(name))), None)


@functools.cache
def load() -> str:
    """Build the library unless it is there, and register its calls with XLA, once a process.

    Returns:
        The best of `ISAS` that this processor runs.

    Raises:
        UnsupportedBackend: there is no compiler, or it fails; the message says what to do.
    """
    library = ctypes.CDLL(str(build(Path(platformdirs.user_cache_dir("sgjax")) / "native")))
    for target in TARGETS:
        capsule = jax.ffi.pycapsule(getattr(library, target))  # type: ignore[no-untyped-call]
        jax.ffi.register_ffi_target(target, capsule, platform="cpu")
    return ISAS[library.sgjax_best_isa()]


def build(folder: Path) -> Path:
    """Return the library in that folder, compiled now unless it is there.

    Raises:
        UnsupportedBackend: there is no compiler, or it fails; the message says what to do.
    """
    compiler = find_compiler()
    if compiler is None:
        raise UnsupportedBackend(
            f"attention='cpu_native' needs a C++ compiler, found none of {', '.join(COMPILERS)}; "
            "install one (Debian: g++, macOS: xcode-select --install) or use attention='cpu'"
        )
    library = folder / f"kernels-{_fingerprint(compiler)}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = _compile(compiler, Path(scratch))
            made.replace(library)  # whole or not at all, whoever else builds it now
    return library


def _sources() -> Path:
    return Path(__file__).parent


def _fingerprint(compiler: str) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    parts = [version.stdout, platform.machine(), metadata.version("jaxlib"), str(_FLAGS)]
    parts += [path.read_text() for path in sorted(_sources().iterdir()) if path.suffix != ".py"]
    parts.append(str(_MACHINE))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _compile(compiler: str, folder: Path) -> Path:
    isas = ISAS if platform.machine() in ("x86_64", "AMD64") else ISAS[:1]
    wanted = [("linear", isa) for isa in isas] + [("attend", isa) for isa in isas[:3]]
    wanted += [("attend_pairs", isa) for isa in isas[3:]]
    commands, objects = [], []
    for source, isa in wanted:
        defines = [f"-DSGJAX_ISA={isa}", f"-DSGJAX_LANES={_LANES[isa]}"]
        objects.append(str(folder / f"{source}-{isa}.o"))
        path = str(_sources() / f"{source}.cc")
        commands.append([*_MACHINE[isa], *defines, "-c", path, "-o", objects[-1]])
    for source in ("driver", "layer"):
        objects.append(str(folder / f"{source}.o"))
        path = str(_sources() / f"{source}.cc")
        commands.append([f"-I{jax.ffi.include_dir()}", "-c", path, "-o", objects[-1]])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda command: _run([compiler, *_FLAGS, *command]), commands))
    library = folder / "library.so"
    _run([compiler, *_FLAGS, "-shared", *objects, "-o", str(library)])
    return library


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnsupportedBackend(
            f"attention='cpu_native': {' '.join(command[:1])} could not build it; use "
            f"attention='cpu', or mend the compiler. It said:\n{done.stderr[-2000:]}"
        )
