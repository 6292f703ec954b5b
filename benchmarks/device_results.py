"""The JSON file of device_check.py, which its processes write in turn. Imports no jax."""

import json
import os
from pathlib import Path
from typing import Any


class Results:
    """Facts and lists of results by name, in a file that is whole at any moment.

    Args:
        path: the file; one that is not there is an empty one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Any]:
        """Return all that is known."""
        if not self.path.exists():
            return {}
        found: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        return found

    def know(self, **facts: str) -> None:
        """Write what all results are of."""
        self._write(facts | self.read())

    def add(self, name: str, value: Any) -> None:
        """Print one result and write it at once: its process may be ended at any time."""
        print(name, value, flush=True)
        found = self.read()
        found.setdefault(name, []).append(value)
        self._write(found)

    def _write(self, found: dict[str, Any]) -> None:
        beside = self.path.with_name(self.path.name + ".new")
        beside.write_text(json.dumps(found, indent=1), encoding="utf-8")
        os.replace(beside, self.path)
