"""The index: one self-contained page over many experiments, with a verdict per claim.

Imports the lab's pages, metrics and summaries.
"""

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sgjax import __version__
from sgjax.lab.expect import Verdict
from sgjax.lab.made import FULL, Made, code, made
from sgjax.lab.metrics import METRICS
from sgjax.lab.provenance import git_sha
from sgjax.lab.records import write_atomically
from sgjax.lab.report import template
from sgjax.lab.summary import Summary
from sgjax.lab.table import show_stat

INDEX = "index.html"
WORDS = ("holds", "does not hold", "not run here", "not judged")


@dataclass(frozen=True)
class Entry:
    """How one experiment ended.

    Attributes:
        name, claim: of the experiment.
        directory: its results; None where it has none.
        arms: their summaries.
        reasons: why it, or a part of it, did not run.
        wall_s: seconds it took; 0 where it was not run now.
        crash: the traceback of a failure that nobody foresaw.
    """

    name: str
    claim: str
    directory: Path | None
    arms: tuple[Summary, ...]
    reasons: tuple[str, ...]
    wall_s: float
    crash: str = ""

    @property
    def made(self) -> Made | None:
        """Return how its results came about; None where there are none."""
        records = [record for arm in self.arms for record in arm.records]
        return made(records) if records else None

    @property
    def form(self) -> str:
        """Return in which form it was run; empty where it was not."""
        return self.made.form if self.made else ""

    @property
    def word(self) -> str:
        """Return the verdict on the claim: all that was expected must hold, and have been run."""
        return claim_word([v for arm in self.arms for v in _verdicts(arm)], bool(self.reasons))

    def word_of(self, arm: Summary) -> str:
        """Return the verdict of one arm."""
        return claim_word(_verdicts(arm), incomplete=False)


def claim_word(verdicts: Sequence[Verdict], incomplete: bool) -> str:
    """Return what verdicts on its expectations say of a claim.

    Args:
        verdicts: of all workloads and arms.
        incomplete: whether something that was to be run was not.
    """
    found = {verdict.holds for verdict in verdicts}
    if False in found:
        return "does not hold"
    if incomplete or None in found:
        return "not run here"
    return "holds" if found else "not judged"


@dataclass(frozen=True)
class Row:
    """A value of the paper beside those of the arms, as text."""

    metric: str
    workload: str
    variant: str
    paper: str
    arms: tuple[str, ...]


def paper_rows(arms: Sequence[Summary]) -> list[Row]:
    """Return every value that the paper gives with what the arms found, in the same terms."""
    rows = []
    for metric, reference in arms[0].experiment.reference.items():
        relative = reference.relative_to is not None
        show = (lambda v: f"{v:.3g}") if relative else METRICS[metric].show
        of = f", {reference.relative_to} = 1" if relative else ""
        for workload, values in reference.values.items():
            for variant in values:
                span = reference.span(workload, variant)
                assert span is not None
                stats = [arm.beside_paper(workload, variant, metric) for arm in arms]
                paper = " to ".join(dict.fromkeys(show(value) for value in span))
                ours = tuple("–" if s is None else show(s.median) for s in stats)
                rows.append(Row(METRICS[metric].heading + of, workload, variant, paper, ours))
    return rows


def write_index(out: Path, entries: Sequence[Entry]) -> Path:
    """Write `index.html` over experiments into the folder that holds their results.

    Raises:
        ResultsError: it cannot be written; the one before stays.
    """
    figures = {
        entry.name: base64.b64encode((entry.directory / "figure.png").read_bytes()).decode()
        for entry in entries
        if entry.directory is not None
    }
    links = {
        entry.name: (entry.directory.relative_to(out) / "report.html").as_posix()
        for entry in entries
        if entry.directory is not None
    }
    page = template("index.html.jinja").render(
        entries=entries,
        counts=Counter(entry.word for entry in entries),
        in_full=Counter(entry.word for entry in entries if entry.form == FULL),
        full=FULL,
        words=WORDS,
        figures=figures,
        links=links,
        paper_rows=paper_rows,
        show_stat=show_stat,
        metrics=METRICS,
        commit=code(git_sha(), __version__),
        wall_s=sum(entry.wall_s for entry in entries),
    )
    write_atomically(out / INDEX, page.encode())
    return out / INDEX


def _verdicts(arm: Summary) -> list[Verdict]:
    return [verdict for verdicts in arm.verdicts.values() for verdict in verdicts]
