"""How much code a program takes in the language and on a plain client.

Imports the task of programs and the import of files. The two programs are files of the user's, the
project's examples in the first place.
"""

import ast
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sgjax.errors import ConfigError
from sgjax.lab.workloads.base import DataSource, LabEngine, Ran
from sgjax.lab.workloads.programs import ProgramsTask
from sgjax.lang.function import SglFunction
from sgjax.lang.spec import LanguageSpec
from sgjax.own import import_file
from sgjax.typed import FORBID_EXTRA

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


@dataclass(frozen=True)
class LinesTask:
    """Two versions of a program.

    Attributes:
        ours, plain: their source files.
        program: runs ours.
    """

    ours: Path
    plain: Path
    program: ProgramsTask

    @property
    def num_programs(self) -> int:
        """Return 1."""
        return self.program.num_programs

    def first(self, count: int) -> "LinesTask":
        """Return the task, run as often."""
        return LinesTask(self.ours, self.plain, self.program.first(count))

    def run(self, engine: LabEngine, language: LanguageSpec) -> Ran:
        """Run our version and count the lines of both."""
        ran = self.program.run(engine, language)
        ours, plain = count_lines(self.ours), count_lines(self.plain)
        metrics = {"lines_ours": ours, "lines_plain": plain, "lines_ratio": plain / ours}
        return Ran(ran.outcomes, ran.prompts, metrics)


@dataclass(frozen=True)
class LinesOfCodeWorkload:
    """A program in the language, and the same on a plain client.

    Attributes:
        type: the tag.
        folder: where both files are.
        ours: the file of the language's version.
        plain: the file of the other one.
        function: the program in `ours`.
        arguments: what it is run with.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["lines_of_code"] = "lines_of_code"
    folder: str = "examples"
    ours: str = "essay_judge.py"
    plain: str = "essay_judge_openai.py"
    function: str = "judge"
    arguments: tuple[tuple[str, str], ...] = (("topic", "Tides"), ("essay", "The moon pulls."))

    def load(self, data: DataSource, seed: int) -> LinesTask:
        """Find the files and import ours."""
        ours, plain = Path(self.folder) / self.ours, Path(self.folder) / self.plain
        for path in (ours, plain):
            if not path.is_file():
                raise ConfigError(
                    f"lines_of_code: {path} is not there; name the programs' folder by the "
                    "workload's key `folder`"
                )
        program = vars(import_file(ours)).get(self.function)
        if not isinstance(program, SglFunction):
            raise ConfigError(f"{ours} has no program {self.function!r}; set 'function'")
        return LinesTask(ours, plain, ProgramsTask(program, (dict(self.arguments),), seed))


def count_lines(path: Path) -> int:
    """Return the lines that hold code: no blank lines, comments, docstrings or main block."""
    left_out = {line for node in _left_out(ast.parse(path.read_bytes())) for line in _lines(node)}
    with path.open("rb") as file:
        used = {
            line
            for token in tokenize.tokenize(file.readline)
            if token.type not in NO_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
    return len(used - left_out)


def _left_out(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            yield node
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            yield node.body[0]


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)
