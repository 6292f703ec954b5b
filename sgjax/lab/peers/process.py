"""PeerProcess: an engine in a process and a Python of its own, asked over a pipe.

Imports the standard library. One line of JSON in, one out (remote/worker.py).
"""

import json
import queue
import subprocess
import threading
from pathlib import Path
from typing import Any, TextIO

TIMEOUT_S = 900.0
"""So long an answer may take: loading and compiling are slow, an engine that hangs is over."""


class PeerProcess:
    """A worker with its engine.

    Args:
        python: the interpreter that has the engine.
        settings: the adapter's module under `engine`, and what its `load` takes.
        log: what the engine prints goes here.

    Attributes:
        about: versions and settings that results must name; empty if it did not start.
        error: why it did not start, or None.
    """

    def __init__(self, python: str, settings: dict[str, Any], log: TextIO) -> None:
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._process: subprocess.Popen[str] | None = None
        try:
            self._process = subprocess.Popen(
                [python, "-m", "remote.worker"],
                cwd=Path(__file__).parent,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        except OSError as error:
            self.about: dict[str, str] = {}
            self.error: str | None = f"{python} cannot be started: {error.strerror}"
            return
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        answer = self.ask(settings)
        self.about = answer.get("about", {})
        self.error = answer.get("error")

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a line and return the answer; an engine that died or hangs answers with `error`."""
        process = self._process
        assert process is not None, self.error
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            answer = self._answers.get(timeout=TIMEOUT_S)
        except BrokenPipeError:
            answer = ""
        except queue.Empty:
            process.kill()
            return {"error": f"it did not answer for {TIMEOUT_S:.0f} s"}
        if not answer:
            return {"error": f"its process ended with status {process.wait()}; see the log"}
        parsed: dict[str, Any] = json.loads(answer)
        return parsed

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._answers.put(line)
        self._answers.put("")
