"""sgjax: SGLang's language and runtime in JAX.

Public names only. `Engine` is loaded on first use, so that `import sgjax` needs no jax.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sgjax.errors import (
    BatchError,
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
from sgjax.lang.api import (
    assistant,
    assistant_begin,
    assistant_end,
    gen,
    gen_int,
    gen_string,
    image,
    select,
    system,
    system_begin,
    system_end,
    user,
    user_begin,
    user_end,
    video,
)
from sgjax.lang.backends.endpoint import RuntimeEndpoint
from sgjax.lang.backends.local import LocalBackend
from sgjax.lang.backends.openai_api import OpenAI
from sgjax.lang.backends.scripted import ScriptedBackend
from sgjax.lang.backends.speculative import SpeculativeBackend
from sgjax.lang.choices import (
    greedy_token_selection,
    sequence_likelihood,
    token_length_normalized,
    unconditional_likelihood_normalized,
)
from sgjax.lang.defaults import (
    flush_cache,
    get_server_info,
    global_config,
    set_default_backend,
)
from sgjax.lang.forks import ForkGroup
from sgjax.lang.function import SglFunction, function
from sgjax.lang.spec import ParallelFork, SequentialFork
from sgjax.lang.state import ProgramState

if TYPE_CHECKING:
    from sgjax.engine.engine import Engine

__version__ = "0.1.0"

__all__ = [
    "BatchError",
    "ConfigError",
    "Engine",
    "ForkGroup",
    "GrammarError",
    "LocalBackend",
    "ModelLoadError",
    "OpenAI",
    "OutOfPages",
    "ParallelFork",
    "ProgramError",
    "ProgramState",
    "PromptTooLong",
    "RequestAborted",
    "RuntimeEndpoint",
    "ScriptedBackend",
    "SequentialFork",
    "SgjaxError",
    "SglFunction",
    "SpeculativeBackend",
    "UnsupportedBackend",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "flush_cache",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "get_server_info",
    "global_config",
    "greedy_token_selection",
    "image",
    "select",
    "sequence_likelihood",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "unconditional_likelihood_normalized",
    "user",
    "user_begin",
    "user_end",
    "video",
]

_LAZY = {"Engine": "sgjax.engine.engine"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'sgjax' has no attribute {name!r}")
