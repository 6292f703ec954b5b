"""Extraction: what speculation saves is counted right, and it never changes a value."""

import pytest

import sgjax as sgl
from sgjax.errors import ConfigError
from sgjax.lab.workloads import DataSource, ExtractionWorkload
from sgjax.lab.workloads.extraction import FIELDS, SHOTS, extract, measure
from sgjax.lab.workloads.witness import Witness
from sgjax.lang.backends.scripted import tokens_of
from sgjax.lang.spec import LanguageSpec

SIM = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b"}
FORM = " Ada\nBorn: 1815\nOccupation: poet\n\nName:"


class Words:
    """Counts tokens as the scripted backend does."""

    def encode(self, text: str, add_bos: bool = False) -> list[str]:
        return tokens_of(text)


def fill_in(written: str) -> list[sgl.ProgramState]:
    """Extract two pages; the model writes `written` after a page, and " x" for later fields."""

    def write(call) -> str:
        return written if call.prompt.text.endswith("Name:") else " x\n"

    backend = sgl.SpeculativeBackend(sgl.ScriptedBackend(write), 64)
    return extract.run_batch([{"page": "One page."}, {"page": "Another one."}], backend=backend)


def lengths(page: str, *values: str) -> list[int]:
    """Return the tokens of the prompts that plain requests would send."""
    text, found = SHOTS + page + "\n", []
    for field, value in zip(FIELDS, values, strict=True):
        text += f"{field}:"
        found.append(len(tokens_of(text)))
        text += f"{value}\n"
    return found


def test_a_form_that_is_followed_takes_the_first_prompt_alone() -> None:
    measured = measure(fill_in(FORM), Words())
    prompts = [lengths(page, " Ada", " 1815", " poet") for page in ("One page.", "Another one.")]
    saved = sum(map(sum, prompts)) / sum(first for first, *_ in prompts)
    assert measured["follow_rate"] == 1
    assert measured["prompt_reduction"] == measured["followed_prompt_reduction"] == saved
    assert saved > 2.9


def test_a_form_that_is_followed_once_saves_one_prompt() -> None:
    measured = measure(fill_in(" Ada\nBorn: 1815\nA poet.\n"), Words())
    prompts = [lengths(page, " Ada", " 1815", " x") for page in ("One page.", "Another one.")]
    sent = sum(first + last for first, _, last in prompts)
    assert measured["follow_rate"] == 0.5
    assert measured["prompt_reduction"] == sum(map(sum, prompts)) / sent
    assert "followed_prompt_reduction" not in measured


def test_values_are_the_same_with_and_without_speculation() -> None:
    task = ExtractionWorkload(num_pages=3, words=20).load(DataSource(), 0)
    with sgl.Engine(executor=SIM) as engine:
        plain = task.run(engine, LanguageSpec())
        ran = task.run(engine, LanguageSpec(num_api_spec_tokens=8))
    assert [o.answer for o in ran.outcomes] == [o.answer for o in plain.outcomes]
    # The simulated model ends no line, so nothing that it wrote on could be used.
    assert ran.metrics["follow_rate"] == 0 == ran.metrics["reused_tokens"]
    assert ran.metrics["wasted_tokens"] == 3 * len(FIELDS) * 8
    assert plain.metrics == {"follow_rate": 0, "prompt_reduction": 1}


def test_pages_are_the_datas_persons_cut_to_their_first_words(tmp_path) -> None:
    rows = '{"kind": "person", "text": "a b c"}\n{"kind": "place", "text": "d"}\n'
    (tmp_path / "wiki_pages.jsonl").write_text(rows)
    data = DataSource(str(tmp_path))
    task = ExtractionWorkload(num_pages=1, words=2).load(data, 0)
    assert task.rows == ({"page": "a b"},)
    with pytest.raises(ConfigError, match="num_pages=2 is not allowed"):
        ExtractionWorkload(num_pages=2).load(data, 0)


def test_threads_at_work_are_counted_behind_speculation() -> None:
    witness = Witness(sgl.ScriptedBackend(""), lambda: 0.0, programs=1)
    speculative = sgl.SpeculativeBackend(witness, 8)
    speculative.active(1)
    assert witness.busy
    speculative.active(-1)
    assert not witness.busy
