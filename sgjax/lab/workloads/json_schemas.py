"""JSON schemas: how many compile, whether they judge right, and what compiling and masking take.

A file of schemas with instances, valid and not, as JSONSchemaBench has them ({id, schema,
tests: [{valid, data}]} a line); some of our own ship with the project. A compiler passes a schema
if it compiles it and judges every instance right, written in one way of spacing. Times are
processor time of one thread. With our own compiler the engine also writes an output for every
schema, which is then validated. Imports the lab's schema judge and worker, and the workload
protocol.
"""

import importlib
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sgjax.errors import UnsupportedBackend
from sgjax.fsm.spec import GrammarSpec
from sgjax.lab.schema_compilers import Name, is_installed
from sgjax.lab.schema_judge import Judged, Schema
from sgjax.lab.schema_worker import Job, SchemaWorker
from sgjax.lab.spread import ask_all
from sgjax.lab.workloads.base import DataSource, LabEngine, Outcome, Ran, refuse_language, require
from sgjax.lab.workloads.text import read_rows
from sgjax.lang.spec import LanguageSpec
from sgjax.theory.visits import Visit
from sgjax.typed import FORBID_EXTRA, validate
from sgjax.types import Completion, Constraint, ConstraintKind, FinishKind, Request, SamplingParams

SHIPPED = Path(__file__).parents[1] / "data" / "schemas.jsonl"
MAX_TOKENS = 400


@dataclass(frozen=True)
class JsonSchemasTask:
    """Schemas for one compiler."""

    schemas: tuple[Schema, ...]
    compiler: Name
    budget_s: float

    @property
    def num_programs(self) -> int:
        """Return the number of schemas."""
        return len(self.schemas)

    def first(self, count: int) -> "JsonSchemasTask":
        """Return the task of the first schemas alone."""
        return replace(self, schemas=self.schemas[:count])

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
        with SchemaWorker(Job(self.compiler, engine.tokenizer, spec, self.budget_s)) as worker:
            judged = [worker.judge(schema) for schema in self.schemas]
        outcomes = tuple(Outcome(j.word, j.right, j.compile_s, 0.0, 0) for j in judged)
        metrics = summarise(judged)
        visits: tuple[Visit, ...] = ()
        if self.compiler == "ours":
            written, visits = self._write(engine, judged)
            metrics |= written
        return Ran(outcomes, visits, metrics)

    def _write(
        self, engine: LabEngine, judged: list[Judged]
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
    metrics["over_budget_schemas"] = float(sum(j.over_budget for j in judged))
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
        budget_s: seconds of processor time for a schema and its instances; who takes longer has
            refused it.
    """

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["json_schemas"] = "json_schemas"
    compiler: Name = "ours"
    file: str = "jsonschemabench_sample.jsonl"
    num_schemas: int | None = None
    budget_s: float = 5.0

    def load(self, data: DataSource, seed: int) -> JsonSchemasTask:
        """Read the schemas; the seed changes nothing."""
        del seed
        require(self, "budget_s", num_schemas=1)
        if importlib.util.find_spec("jsonschema") is None:
            raise UnsupportedBackend(
                "outputs are validated by the package jsonschema; install sgjax[grammar]"
            )
        (path,) = data.find((self.file,)) or [SHIPPED]
        rows = read_rows(path, ("id", "schema", "tests"))[: self.num_schemas]
        return JsonSchemasTask(tuple(map(_schema, rows)), self.compiler, self.budget_s)


def _schema(row: Mapping[str, Any]) -> Schema:
    tests = tuple((bool(test["valid"]), test["data"]) for test in row["tests"])
    return Schema(row["id"], json.dumps(row["schema"]), tests)


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
