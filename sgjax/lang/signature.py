"""What a program may be given: its own arguments, and sampling defaults beside them.

Imports options and errors. A program's arguments go by name everywhere (rows of a batch, traces,
constant prefixes), so it has named parameters only, and none that `run` has itself.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

from sgjax.errors import ConfigError
from sgjax.lang.options import OPTIONS

RESERVED = OPTIONS | {"stream", "backend", "fork", "num_threads", "progress_bar", "generator_style"}
"""Arguments of `run` and `run_batch`, which no parameter of a program may be called."""

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@final
class ProgramSignature:
    """The parameters of a program, without the state `s`.

    Args:
        func: the program's function.

    Raises:
        ConfigError: it is no Python function, its first parameter is not `s`, or another one cannot
            be a program's.
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        if not inspect.isroutine(func):
            raise ConfigError(f"function takes a Python function, not {func!r}")
        self._name = func.__name__
        self._signature = _without_state(func)

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Return the parameters by name."""
        return self._signature.parameters

    def complete(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], bound: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return all arguments by name, defaults left out.

        Args:
            args, kwargs: as a program is called.
            bound: what is fixed, unless it is given.

        Raises:
            ConfigError: they do not fit the program.
        """
        try:
            given = self._signature.bind_partial(*args, **kwargs).arguments
            return dict(self._signature.bind(**{**bound, **given}).arguments)
        except TypeError as error:
            raise ConfigError(
                f"{self._name}: {error}; its arguments are: {self._listed}; sampling defaults are: "
                f"{', '.join(sorted(OPTIONS))}"
            ) from None

    def check_names(self, arguments: Iterable[str]) -> None:
        """Refuse arguments that the program does not have.

        Raises:
            ConfigError: there is one.
        """
        unknown = [name for name in arguments if name not in self.parameters]
        if unknown:
            raise ConfigError(
                f"{self._name} has no parameter {unknown[0]!r}; it has: {self._listed}"
            )

    @property
    def _listed(self) -> str:
        return ", ".join(self.parameters) or "none"


def split_options(kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the sampling defaults among keyword arguments of `run`, and the others."""
    options = {key: value for key, value in kwargs.items() if key in OPTIONS}
    return options, {key: value for key, value in kwargs.items() if key not in OPTIONS}


def check_flags(**flags: object) -> None:
    """Refuse switches that are neither True nor False.

    Raises:
        ConfigError: there is one.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name}={value!r} is not allowed; it must be True or False")


def checked_rows(name: str, rows: object) -> list[Mapping[str, Any]]:
    """Return the rows of a batch of the program `name`, if they are some.

    Raises:
        ConfigError: they are no rows, or one is no mapping.
    """
    if not isinstance(rows, Iterable) or isinstance(rows, Mapping | str):
        kind = type(rows).__name__
        raise ConfigError(f"{name}: a batch is a {kind}; give a list, a dict of arguments each")
    checked = list(rows)
    for row in checked:
        if not isinstance(row, Mapping):
            raise ConfigError(
                f"{name}: a batch holds {row!r}; give a dict of arguments per program"
            )
    return checked


def _without_state(func: Callable[..., Any]) -> inspect.Signature:
    for kind, is_kind in (
        ("an async function", inspect.iscoroutinefunction),
        ("a generator", inspect.isgeneratorfunction),
        ("an async generator", inspect.isasyncgenfunction),
    ):
        if is_kind(func):
            raise ConfigError(
                f"{func.__name__} is {kind}, and calling it runs nothing; write a plain function: "
                "`s += ...` returns at once anyway"
            )
    signature = inspect.signature(func)
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].name != "s":
        raise ConfigError(
            f"the first parameter of {func.__name__} must be named 's' (the prompt state); it has: "
            f"{', '.join(signature.parameters) or 'none'}"
        )
    for parameter in parameters[1:]:
        if parameter.name in RESERVED:
            raise ConfigError(
                f"{func.__name__} has a parameter {parameter.name!r}, which is an argument of run "
                "itself; rename it"
            )
        if parameter.kind not in _NAMED:
            raise ConfigError(
                f"{func.__name__} has a {parameter.kind.description} parameter {parameter.name!r}, "
                "but a program's arguments go by name; name each"
            )
    return signature.replace(parameters=parameters[1:])
