"""Schemas compiled, judged and written: on the shipped file, by us and by who is installed."""

import json
import os
import signal

import jsonschema
import pytest

import sgjax as sgl
from sgjax.errors import ConfigError
from sgjax.fsm.portable import PortableKernels
from sgjax.fsm.spec import GrammarSpec
from sgjax.lab.metrics import METRICS
from sgjax.lab.schema_compilers import Refused, is_installed, load_compiler
from sgjax.lab.schema_judge import Schema, judge
from sgjax.lab.schema_worker import Job, SchemaWorker
from sgjax.lab.workloads import DataSource, JsonSchemasWorkload
from sgjax.lab.workloads.json_schemas import summarise
from sgjax.lang.spec import LanguageSpec
from sgjax.tokens.byte import ByteTokenizer

SIM = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b"}
SCHEMAS = JsonSchemasWorkload().load(DataSource(), seed=0).schemas
BEYOND_US = {"recursive tree", "all of", "broken"}


def run(**options):
    task = JsonSchemasWorkload(**options).load(DataSource(), seed=0)
    with sgl.Engine(executor=SIM, grammar={"whitespace": "fixed"}) as engine:
        return task, task.run(engine, LanguageSpec())


def test_the_shipped_instances_are_what_they_are_said_to_be() -> None:
    validator = jsonschema.Draft202012Validator
    for schema in SCHEMAS:
        if schema.id == "broken":
            continue
        checks = validator(json.loads(schema.text), format_checker=validator.FORMAT_CHECKER)
        for valid, data in schema.tests:
            assert checks.is_valid(data) == valid, (schema.id, data)


def test_our_compiler_judges_right_what_it_compiles_and_its_outputs_are_valid() -> None:
    task, ran = run()
    words = {s.id: o.answer for s, o in zip(task.schemas, ran.outcomes, strict=True)}
    refused = {name for name, word in words.items() if word.startswith("refused")}
    assert refused == BEYOND_US
    assert all(word == "passes" for name, word in words.items() if name not in refused)
    assert "recursive" in words["recursive tree"]
    metrics = ran.metrics
    assert metrics.keys() <= METRICS.keys()
    assert metrics["compiled_schemas"] == metrics["passing_schemas"] == 23 / 26
    assert metrics["false_accepts"] == metrics["false_rejects"] == 0
    assert metrics["valid_outputs"] == 1
    assert metrics["finished_outputs"] > 0.5  # one token a byte: some are cut
    assert 0 < metrics["compile_p50_s"] <= metrics["compile_max_s"]


@pytest.mark.parametrize("compiler", ["hybrid", "llguidance"])
def test_llguidance_judges_the_recursive_one_too(compiler) -> None:
    pytest.importorskip("llguidance")
    task, ran = run(compiler=compiler)
    words = {s.id: o.answer for s, o in zip(task.schemas, ran.outcomes, strict=True)}
    assert words["recursive tree"] == "passes"
    assert ran.metrics["false_accepts"] == 0
    assert ran.metrics["installed"] == 1
    assert not ran.prompts


@pytest.mark.parametrize("compiler", ["xgrammar", "outlines_core"])
def test_other_packages_are_driven_alike_or_shown_as_not_installed(compiler) -> None:
    if is_installed(compiler):
        spec = GrammarSpec(whitespace="fixed")
        compile_schema = load_compiler(compiler, ByteTokenizer(), PortableKernels(), spec)
        reference = next(s for s in SCHEMAS if s.id == "reference")
        assert judge(reference, compile_schema, ByteTokenizer(), spec).right
    else:
        _, ran = run(compiler=compiler, num_schemas=2)
        assert ran.metrics == {"installed": 0.0}
        assert [o.answer for o in ran.outcomes] == ["not installed"] * 2


def test_wrong_judgements_are_counted_by_their_direction() -> None:
    class Anything:
        def mask(self):
            pass

        def advance(self, token):
            return True

        def accepts(self):
            return True

    def compile_schema(schema):
        if 'strin"' in schema:
            raise Refused("no such type")
        return Anything

    judged = [judge(s, compile_schema, ByteTokenizer(), GrammarSpec()) for s in SCHEMAS]
    metrics = summarise(judged)
    assert metrics["false_rejects"] == 0
    assert metrics["false_accepts"] == sum(not v for s in SCHEMAS for v, _ in s.tests)
    assert judged[-1].word == "refused: no such type"
    assert metrics["compiled_schemas"] == 25 / 26
    assert metrics["passing_schemas"] == 0


def test_a_schema_that_takes_too_long_or_kills_its_compiler_is_refused_alone() -> None:
    nested = {"type": "string", "pattern": "^((a{0,50}b?){0,50}c?){0,50}$"}
    slow = Schema("slow", json.dumps(nested), ())
    spec = GrammarSpec(kernels="numpy", max_states=10**9, max_compile_s=1000)
    with SchemaWorker(Job("ours", ByteTokenizer(), spec, budget_s=0.5)) as worker:
        judged = [worker.judge(schema) for schema in (SCHEMAS[0], slow, SCHEMAS[0])]
        assert [j.over_budget for j in judged] == [False, True, False]
        assert [j.right for j in judged] == [True, False, True]
        assert judged[1].word == "refused: more than 0.5 s of processor time (budget_s)"
        os.kill(worker.pid, signal.SIGKILL)
        assert worker.judge(SCHEMAS[0]).word == (
            "refused: the compiler's process ended with status -9"
        )
        assert worker.judge(SCHEMAS[0]).right
    assert summarise(judged)["over_budget_schemas"] == 1


def test_files_are_read_and_cut(tmp_path) -> None:
    rows = [{"id": f"s{i}", "schema": {"type": "boolean"}, "tests": []} for i in range(3)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "jsonschemabench_sample.jsonl").write_text(text)
    task = JsonSchemasWorkload(num_schemas=2).load(DataSource(str(tmp_path)), seed=0)
    assert [s.id for s in task.schemas] == ["s0", "s1"]
    assert task.first(1).num_programs == 1
    with pytest.raises(ConfigError, match="num_schemas=0"):
        JsonSchemasWorkload(num_schemas=0).load(DataSource(), seed=0)
    with pytest.raises(ConfigError, match="budget_s=0"):
        JsonSchemasWorkload(budget_s=0).load(DataSource(), seed=0)
