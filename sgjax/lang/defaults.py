"""GlobalConfig: the language's default backend and how forks run; the library's only global.

Imports spec and the Backend protocol.
"""

from typing import Any, final

from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.lang.backends.adapt import as_backend
from sgjax.lang.backends.base import Backend
from sgjax.lang.spec import ForkSpec, ParallelFork, SequentialFork


@final
class GlobalConfig:
    """What programs use that name no backend or fork mode of their own.

    It has no other settings: a name that is not there cannot be set.
    """

    __slots__ = ("_backend", "_fork")

    def __init__(self) -> None:
        self._backend: Backend | None = None
        self._fork: ForkSpec = ParallelFork()

    @property
    def default_backend(self) -> Backend | None:
        """Return the default backend, or None."""
        return self._backend

    @default_backend.setter
    def default_backend(self, backend: object) -> None:
        self._backend = None if backend is None else as_backend(backend)

    @property
    def fork(self) -> ForkSpec:
        """Return how forks run unless a run says otherwise."""
        return self._fork

    @fork.setter
    def fork(self, spec: ForkSpec) -> None:
        self._fork = _fork_mode(spec)

    def fork_or_default(self, given: object) -> ForkSpec:
        """Return how forks run.

        Args:
            given: what a run was given; None takes the default.

        Raises:
            ConfigError: it is no fork mode.
        """
        return self._fork if given is None else _fork_mode(given)

    def backend(self, given: object = None) -> Backend:
        """Return the backend to use.

        Args:
            given: a backend or an engine; None takes the default.

        Raises:
            UnsupportedBackend: there is none.
        """
        if given is not None:
            return as_backend(given)
        if self._backend is None:
            raise UnsupportedBackend(
                "no backend is set; call sgl.set_default_backend(sgl.Engine(...)), or pass "
                "backend= to run"
            )
        return self._backend


def _fork_mode(given: object) -> ForkSpec:
    if isinstance(given, ParallelFork | SequentialFork):
        return given
    raise ConfigError(
        f"fork={given!r} is not allowed; give sgl.ParallelFork(hint=...) or sgl.SequentialFork()"
    )


global_config = GlobalConfig()


def set_default_backend(backend: object) -> None:
    """Use a backend, or an engine, wherever a run names none."""
    global_config.default_backend = backend


def flush_cache(backend: object = None) -> bool:
    """Drop a backend's cached prefixes; return whether it was done."""
    return global_config.backend(backend).flush_cache()


def get_server_info(backend: object = None) -> dict[str, Any]:
    """Return what is known of a backend's server."""
    return global_config.backend(backend).get_server_info()
