"""sgjax: SGLang's language and runtime in JAX.

Public names only. `Engine` is loaded on first use, so that `import sgjax` needs no jax.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sgjax.errors import (
    ConfigError,
    GrammarError,
    ModelLoadError,
    OutOfPages,
    ProgramError,
    PromptTooLong,
    RequestAborted,
    SgjaxError,
    UnsupportedBackend,
)

if TYPE_CHECKING:
    from sgjax.engine.engine import Engine

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "Engine",
    "GrammarError",
    "ModelLoadError",
    "OutOfPages",
    "ProgramError",
    "PromptTooLong",
    "RequestAborted",
    "SgjaxError",
    "UnsupportedBackend",
]

_LAZY = {"Engine": "sgjax.engine.engine"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'sgjax' has no attribute {name!r}")
