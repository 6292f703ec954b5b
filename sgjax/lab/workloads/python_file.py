"""Workloads of the user's own, from a Python file. Imports the workload protocol.

The file holds a function that makes a task; nothing in the library need be changed::

    def load(data, seed, num_topics=4):
        rows = tuple({"topic": f"topic {i}"} for i in range(num_topics))
        return ProgramsTask(ask, rows, seed)  # of a program of the language
"""

import importlib.util
import inspect
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from sgjax.errors import ConfigError
from sgjax.lab.workloads.base import DataSource, Task
from sgjax.typed import FORBID_EXTRA


@dataclass(frozen=True)
class PythonWorkload:
    """What a function in a file of the user's makes.

    Attributes:
        type: the tag.
        file: the Python file.
        function: is called with `data` (a `DataSource`), `seed` and the options; returns a `Task`.
        options: its further arguments.
    """

    __pydantic_config__ = FORBID_EXTRA
    file: str
    function: str = "load"
    options: dict[str, Any] = field(default_factory=dict)
    type: Literal["python"] = "python"

    def load(self, data: DataSource, seed: int) -> Task:
        """Import the file and call the function."""
        make = vars(import_file(Path(self.file))).get(self.function)
        if not callable(make):
            raise ConfigError(f"{self.file} has no function {self.function!r}; set 'function'")
        try:
            inspect.signature(make).bind(data, seed, **self.options)
        except TypeError as error:
            raise ConfigError(
                f"options={self.options} do not fit {self.function}{inspect.signature(make)} of "
                f"{self.file}, which is called with data and seed before them: {error}"
            ) from None
        task = make(data, seed, **self.options)
        if not hasattr(task, "num_programs"):
            raise ConfigError(
                f"{self.function} of {self.file} returned {type(task).__name__}; a Task is needed, "
                "such as ProgramsTask(program, rows, seed)"
            )
        return task  # type: ignore[no-any-return]


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
