"""Workloads of the user's own, from a Python file. Imports own and the workload protocol.

The file holds a function that makes a task; nothing in the library need be changed::

    def load(data, seed, num_topics=4):
        rows = tuple({"topic": f"topic {i}"} for i in range(num_topics))
        return ProgramsTask(ask, rows, seed)  # of a program of the language
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from sgjax import own
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
        task = own.call(self.file, self.function, self.options, data, seed)
        if not hasattr(task, "num_programs"):
            raise ConfigError(
                f"{self.function} of {self.file} returned {type(task).__name__}; a Task is needed, "
                "such as ProgramsTask(program, rows, seed)"
            )
        return task  # type: ignore[no-any-return]
