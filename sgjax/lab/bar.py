"""The progress bar of a running experiment, counted in programs. Imports rich."""

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)


class Bar:
    """A bar that is drawn while it is entered.

    Args:
        console: where.
        title: stands before whatever it says.
    """

    def __init__(self, console: Console, title: str = "") -> None:
        self._title = f"{title} · " if title else ""
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("programs"),
            TimeElapsedColumn(),
            console=console,
        )
        self._total = 0
        self._task = self._progress.add_task("", total=0)

    def expect(self, programs: int) -> None:
        """Add programs that are still to come."""
        self._total += programs
        self._progress.update(self._task, total=self._total)

    def advance(self, programs: int) -> None:
        """Count programs that have been run."""
        self._progress.advance(self._task, programs)

    def say(self, text: str) -> None:
        """Say what is going on."""
        self._progress.update(self._task, description=self._title + text)

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()
