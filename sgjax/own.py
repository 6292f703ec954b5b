"""What users write in Python files of their own: policies, eviction orders, workloads.

HOST. Imports errors and typed. An object of the YAML names the file and what in it to call; nothing
in the library need be changed for it.
"""

import importlib.util
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from sgjax.errors import ConfigError, SgjaxError
from sgjax.typed import FORBID_EXTRA


@dataclass(frozen=True)
class PythonSpec:
    """A strategy of the user's own.

    Attributes:
        file: the Python file.
        function: a class or function in it that gives the strategy.
        options: its arguments, by keyword.
    """

    __pydantic_config__ = FORBID_EXTRA
    file: str
    function: str
    options: dict[str, Any] = field(default_factory=dict)
    type: Literal["python"] = "python"


def make_a(kind: type, spec: PythonSpec) -> Any:
    """Return what a specification gives, which must be an instance of `kind`.

    Raises:
        ConfigError: the file, the function, the options or what was given will not do.
    """
    made = call(spec.file, spec.function, spec.options)
    if not isinstance(made, kind):
        raise ConfigError(
            f"{spec.function} of {spec.file} gave a {type(made).__name__}; a "
            f"{kind.__module__}.{kind.__name__} is needed"
        )
    for name in inspect.get_annotations(kind):
        if not hasattr(made, name):
            raise ConfigError(
                f"{spec.function} of {spec.file} does not set {name!r}, as every {kind.__name__} "
                f"must; see {kind.__module__}"
            )
    return made


def call(file: str, name: str, options: Mapping[str, Any], *first: Any) -> Any:
    """Call a class or function of a user's file.

    Args:
        file: the Python file.
        name: of what is called.
        options: arguments by keyword.
        first: arguments before them.

    Raises:
        ConfigError: the file, the name or the options will not do, or what is called fails.
    """
    called = vars(import_file(Path(file))).get(name)
    if not callable(called):
        raise ConfigError(f"{file} has no function {name!r}, nor a class; set 'function'")
    signature = inspect.signature(called)
    try:
        signature.bind(*first, **options)
    except TypeError as error:
        behind = f", behind {len(first)} arguments" if first else ""
        raise ConfigError(
            f"options={dict(options)} do not fit {name}{signature} of {file}{behind}: {error}"
        ) from None
    try:
        return called(*first, **options)
    except SgjaxError:
        raise
    except Exception as error:  # it is the user's code, which may fail as it likes
        raise ConfigError(f"{name} of {file} failed: {type(error).__name__}: {error}") from error


def import_file(path: Path) -> ModuleType:
    """Import a Python file by its path.

    Raises:
        ConfigError: it is not there, or is no Python.
    """
    if not path.is_file():
        raise ConfigError(f"{path} is not there; name a Python file, relative to where you are")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is no Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # it is the user's code, which may fail as it likes
        raise ConfigError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module
