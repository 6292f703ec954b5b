"""JSON schemas: how many compile, whether they judge right, and what compiling and masking take.

A file of schemas with instances, valid and not, as JSONSchemaBench has them ({id, schema,
tests: [{valid, data}]} a line); some of our own ship with the project. A compiler passes a schema
if it compiles it and judges every instance right, written in one way of spacing. Times are
processor time of one thread. With our own compiler the engine also writes an output for every
schema, which is then validated. Imports the lab's schema compilers and the workload protocol.
"""

import importlib
import importlib.util
import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.fsm.native import load_kernels
from sgjax.fsm.spec import GrammarSpec
from sgjax.lab.schema_compilers import (
    Compile,
    Matcher,
    Name,
    Refused,
    is_installed,
    load_compiler,
)
from sgjax.lab.spread import ask_all
from sgjax.lab.workloads.base import DataSource, LabEngine, Outcome, Ran, refuse_language
from sgjax.lab.workloads.text import read_rows
from sgjax.lang.spec import LanguageSpec
from sgjax.models.pull import default_cache_dir
from sgjax.theory.visits import Visit
from sgjax.tokens.base import Tokenizer
from sgjax.typed import FORBID_EXTRA, validate
from sgjax.types import Completion, Constraint, ConstraintKind, FinishKind, Request, SamplingParams

SHIPPED = Path(__file__).parents[1] / "data" / "schemas.jsonl"
MAX_TOKENS = 400


@dataclass(frozen=True)
class Schema:
    """A schema and its instances.

    Attributes:
        id: names it.
        text: its JSON text.
        tests: (whether it is valid, the instance).
    """

    id: str
    text: str
    tests: tuple[tuple[bool, Any], ...]


@dataclass(frozen=True)
class JsonSchemasTask:
    """Schemas for one compiler."""

    schemas: tuple[Schema, ...]
    compiler: Name

    @property
    def num_programs(self) -> int:
        """Return the number of schemas."""
        return len(self.schemas)

    def first(self, count: int) -> "JsonSchemasTask":
        """Return the task of the first schemas alone."""
        return JsonSchemasTask(self.schemas[:count], self.compiler)

    def run(self, engine: LabEngine, language: LanguageSpec) -> Ran:
        """Compile and judge all schemas; one whose package is missing is reported, not skipped."""
        refuse_language(language, "json_schemas")
        if not self.schemas:
            return Ran((), ())
        if not is_installed(self.compiler):
            outcomes = tuple(Outcome("not installed", None, 0.0, 0.0, 0) for _ in self.schemas)
            return Ran(outcomes, (), {"installed": 0.0})
        info = engine.get_server_info()
        spec = validate(GrammarSpec, info["config"]["grammar"], "the engine's grammar")
        spec = replace(spec, guided=self.compiler == "hybrid")
        kernels = load_kernels(spec.kernels, default_cache_dir() / "native")
        compiler = load_compiler(self.compiler, engine.tokenizer, kernels, spec)
        compiler('{"type": "boolean"}')  # what is built once is not the first schema's
        judged = [judge(schema, compiler, engine.tokenizer, spec) for schema in self.schemas]
        outcomes = tuple(Outcome(j.word, j.right, j.compile_s, 0.0, 0) for j in judged)
        metrics = summarise(judged)
        visits: tuple[Visit, ...] = ()
        if self.compiler == "ours":
            written, visits = self._write(engine, judged)
            metrics |= written
        return Ran(outcomes, visits, metrics)

    def _write(
        self, engine: LabEngine, judged: "list[Judged]"
    ) -> tuple[dict[str, float], tuple[Visit, ...]]:
        """Let the engine write an output for each schema that compiles, and validate it."""
        chosen = [s for s, j in zip(self.schemas, judged, strict=True) if j.compiled]
        prompt = tuple(engine.tokenizer.encode("As JSON: ", add_bos=True))
        requests = [
            Request(
                engine.new_id(),
                prompt,
                SamplingParams(max_new_tokens=MAX_TOKENS, seed=number),
                constraint=Constraint(ConstraintKind.JSON_SCHEMA, schema.text),
            )
            for number, schema in enumerate(chosen)
        ]
        completions = ask_all(engine, requests)
        ended = [
            (schema, completion)
            for schema, completion in zip(chosen, completions, strict=True)
            if completion.finish.kind is FinishKind.STOP
        ]
        metrics = {"finished_outputs": len(ended) / max(len(chosen), 1)}
        if ended:
            valid = [_is_valid(schema, completion) for schema, completion in ended]
            metrics["valid_outputs"] = sum(valid) / len(valid)
        return metrics, tuple(Visit(prompt, c.output_ids) for c in completions)


@dataclass(frozen=True)
class Judged:
    """What a compiler made of one schema.

    Attributes:
        compiled: whether it compiled it.
        compile_s: processor time of that.
        false_accepts, false_rejects: instances judged wrong.
        masks_s: processor time of each mask along the instances.
        reason: why it was refused.
    """

    compiled: bool
    compile_s: float
    false_accepts: int = 0
    false_rejects: int = 0
    masks_s: tuple[float, ...] = ()
    reason: str = ""

    @property
    def right(self) -> bool:
        """Return whether it compiles and judges every instance right."""
        return self.compiled and not self.false_accepts + self.false_rejects

    @property
    def word(self) -> str:
        """Return the result in words."""
        if not self.compiled:
            return f"refused: {self.reason[:200]}"
        return "passes" if self.right else "compiles, and judges an instance wrong"


def judge(schema: Schema, compiler: Compile, tokenizer: Tokenizer, spec: GrammarSpec) -> Judged:
    """Compile a schema and judge its instances."""
    started_s = time.thread_time()
    try:
        make = compiler(schema.text)
    except Refused as refused:
        return Judged(False, time.thread_time() - started_s, reason=str(refused))
    compile_s = time.thread_time() - started_s
    separators = (",", ":") if spec.whitespace == "compact" else (", ", ": ")
    wrong: Counter[bool] = Counter()
    masks_s: list[float] = []
    for valid, data in schema.tests:
        text = json.dumps(data, ensure_ascii=False, separators=separators)
        accepted = _accepts(make(), tokenizer.encode(text), masks_s)
        wrong[valid] += accepted != valid
    return Judged(True, compile_s, wrong[False], wrong[True], tuple(masks_s))


def summarise(judged: list[Judged]) -> dict[str, float]:
    """Return the metrics of a compiler over all schemas."""
    compiled = [j for j in judged if j.compiled]
    masks_s = [s for j in compiled for s in j.masks_s]
    metrics = {
        "installed": 1.0,
        "compiled_schemas": len(compiled) / len(judged),
        "passing_schemas": sum(j.right for j in judged) / len(judged),
        "false_accepts": float(sum(j.false_accepts for j in compiled)),
        "false_rejects": float(sum(j.false_rejects for j in compiled)),
    }
    if compiled:
        seconds = [j.compile_s for j in compiled]
        metrics |= _quantiles("compile", seconds, (("p50", 0.5), ("p99", 0.99), ("max", 1.0)))
    if masks_s:
        metrics |= _quantiles("mask", masks_s, (("p50", 0.5), ("p99", 0.99)))
    return metrics


@dataclass(frozen=True)
class JsonSchemasWorkload:
    """A file of schemas, for one compiler.

    Attributes:
        type: the tag.
        compiler: `ours` (regular schemas), `hybrid` (ours, else llguidance), `llguidance`,
            `xgrammar` or `outlines_core`.
        file: the schemas' name in the data folder; without a folder, our own are taken.
        num_schemas: take the first so many; None takes all.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["json_schemas"] = "json_schemas"
    compiler: Name = "ours"
    file: str = "jsonschemabench_sample.jsonl"
    num_schemas: int | None = None

    def load(self, data: DataSource, seed: int) -> JsonSchemasTask:
        """Read the schemas; the seed changes nothing."""
        del seed
        if self.num_schemas is not None and self.num_schemas < 1:
            raise ConfigError(f"json_schemas: num_schemas={self.num_schemas} must be >= 1")
        if importlib.util.find_spec("jsonschema") is None:
            raise UnsupportedBackend(
                "outputs are validated by the package jsonschema; install sgjax[grammar]"
            )
        (path,) = data.find((self.file,)) or [SHIPPED]
        rows = read_rows(path, ("id", "schema", "tests"))[: self.num_schemas]
        return JsonSchemasTask(tuple(map(_schema, rows)), self.compiler)


def _schema(row: Mapping[str, Any]) -> Schema:
    tests = tuple((bool(test["valid"]), test["data"]) for test in row["tests"])
    return Schema(row["id"], json.dumps(row["schema"]), tests)


def _accepts(matcher: Matcher, tokens: list[int], masks_s: list[float]) -> bool:
    for token in tokens:
        started_s = time.thread_time()
        matcher.mask()
        masks_s.append(time.thread_time() - started_s)
        if not matcher.advance(token):
            return False
    return matcher.accepts()


def _is_valid(schema: Schema, completion: Completion) -> bool:
    jsonschema: Any = importlib.import_module("jsonschema")
    try:
        jsonschema.validate(json.loads(completion.text), json.loads(schema.text))
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def _quantiles(
    name: str, seconds: list[float], wanted: tuple[tuple[str, float], ...]
) -> dict[str, float]:
    return {f"{name}_{label}_s": float(np.quantile(seconds, at)) for label, at in wanted}
