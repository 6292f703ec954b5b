"""benchmarks/peers.py: every engine is asked the same, and none is dropped in silence."""

import importlib
import shutil
import sys
import types
from pathlib import Path

import pytest
import tokenizers

from sgjax.lab.peers import checkpoints
from sgjax.models import hf
from sgjax.models.load import load_model
from sgjax.models.weights import from_tensors
from sgjax.tokens.byte import ByteTokenizer
from tests.models.checkpoints import assert_same_weights, write_gguf

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.append(str(Path(__file__).parents[2] / "sgjax" / "lab" / "peers"))  # as workers see it

import peers
from peer import report, work
from peer.report import Cell, Column
from remote import worker
from remote.base import Decoded


class CountingPeer:
    """Answers a prompt with its length, and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def generate(self, prompts, new):
        self.asked.append(prompts)
        return [[len(p)] * new for p in prompts]

    def decode(self, prompts, new):
        return Decoded(self.generate(prompts, new), 2.0, len(prompts) * (new - 1))

    def compilations(self):
        return len(self.asked)


@pytest.fixture
def texts():
    return work.question_texts(ByteTokenizer())


@pytest.mark.parametrize("workload", work.WORKLOADS, ids=lambda w: w.name)
def test_a_job_counts_what_it_runs(workload, texts):
    job = workload.make(texts)
    answer = worker.run(CountingPeer(), job)
    assert answer["seconds"] > 0
    expected = {
        "batch": len(job.get("prompts", ())) if workload.unit == "requests/s" else None,
        "decode": len(job.get("prompts", ())) * (job["new"] - 1),
        "chat": sum(len(turn) for turn in job.get("turns", ())),
    }[job["kind"]]
    assert answer["count"] == (expected or len(job["prompts"][0]))
    assert answer["compiled"] > 0


def test_prompts_of_different_repeats_begin_differently(texts):
    jobs = [w.make(texts) for w in work.WORKLOADS[:4] for _ in range(6)]
    begins = [tuple(job["prompts"][0][:16]) for job in jobs]
    assert len(set(begins)) == len(begins)


def test_questions_share_their_shots_and_nothing_else(texts):
    prompts = work.shared_prefix(requests=8, shared=100).make(texts)["prompts"]
    assert len({tuple(p[:100]) for p in prompts}) == 1
    assert len({tuple(p[:116]) for p in prompts}) == 8


def test_a_chat_goes_on_from_the_engines_own_answers():
    peer = CountingPeer()
    turns = [[[1, 2], [3]], [[4], [5]]]
    worker.run(peer, {"kind": "chat", "turns": turns, "new": 2, "count": 4})
    assert peer.asked == [[[1, 2], [3]], [[1, 2, 2, 2, 4], [3, 1, 1, 5]]]


@pytest.mark.parametrize(
    ("python", "reason"),
    [(sys.executable, "No module named 'remote.run_nothing'"), (shutil.which("false"), "status 1")],
)
def test_an_engine_that_cannot_run_is_listed_with_the_reason(python, reason, tmp_path):
    with (tmp_path / "log").open("w") as log:
        started = peers.Worker("nothing", python, {"engine": "nothing"}, log)
    started.close()
    assert reason in started.column.error
    assert f"nothing: not run, {started.column.error}" in report.markdown([started.column], {}, {})


def test_ratios_are_to_the_best_peer_and_failures_are_named():
    columns = [Column(name, {"version": "1"}) for name in ("sgjax", "a", "b", "c")]
    cells = {
        "sgjax": Cell([10.0, 30.0, 20.0], [[1, 2, 3], [4, 5, 6]]),
        "a": Cell([5.0], [[1, 2, 9], [4, 5, 6]]),
        "b": Cell([40.0]),
        "c": Cell(error="it broke"),
    }
    text = report.markdown(columns, {"w": cells}, {"w": "work"})
    assert "| work | 20 ±50% | 5 ±0% | 40 ±0% | failed | 0.50 |" in text
    assert "work: c failed, it broke" in text
    results = report.as_json(columns, {"w": cells})["results"]["w"]
    assert results["a"]["over_best_peer"] == 5 / 40
    assert results["a"]["same_tokens_as_first"] == pytest.approx(5 / 6)


@pytest.mark.parametrize("form", [checkpoints.hf_folder, checkpoints.gguf_file])
def test_peers_read_the_weights_that_sgjax_reads(form, tmp_path):
    source = write_gguf(tmp_path / "model.gguf", kind="Q8_0")
    expected = load_model(str(source), "bfloat16")
    written = form(source, "bfloat16", tmp_path / "cache")
    assert written == form(source, "bfloat16", tmp_path / "cache")
    assert list(written.parent.iterdir()) == [written]
    if written.is_file():
        got = load_model(str(written), "bfloat16")
        assert (got.config, got.tokenizer.end_ids) == (expected.config, expected.tokenizer.end_ids)
        assert_same_weights(got.weights, expected.weights)
    else:
        config = hf.config_from_folder(written)
        weights = from_tensors(config, hf.tensor_reader(written), "bfloat16")
        assert config == expected.config
        assert_same_weights(weights, expected.weights)


def test_peers_that_read_text_cut_it_as_sgjax_does(tmp_path):
    source = write_gguf(tmp_path / "model.gguf", kind="Q8_0")
    ours = load_model(str(source), "bfloat16").tokenizer
    folder = checkpoints.tokenizer_folder(source, tmp_path / "cache")
    written = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in ("the cat sat", "  spaces, é and 🙂\n"):
        ids = written.encode(text, add_special_tokens=False).ids
        assert ids == ours.encode(text)
        assert written.decode(ids, skip_special_tokens=False) == ours.decode(ids)


class ByteVocabulary:
    """A vocabulary of bytes, in llama.cpp's words; 0 ends a text."""

    def __init__(self, model, **options):
        pass

    def detokenize(self, ids, special):
        return bytes(ids)

    def tokenize(self, text, add_bos, special):
        return list(text)

    def token_eos(self):
        return 0


def test_peers_of_texts_go_on_behind_an_end_token_until_they_said_enough(monkeypatch):
    library = types.SimpleNamespace(Llama=ByteVocabulary, __version__="1")
    monkeypatch.setitem(sys.modules, "llama_cpp", library)
    monkeypatch.delitem(sys.modules, "remote.text", raising=False)
    text = importlib.import_module("remote.text")
    says = b"Hi.\0So\0\0on and on"
    asked = []

    def answer(prompt, most):
        asked.append((prompt, most))
        said = says[len(prompt) - len("you: ") :]
        return said[: min(most, said.index(b"\0") if b"\0" in said else most)].decode()

    peer = text.TextPeer(answer, "model.gguf", {})
    prompt = list(b"you: ")
    assert peer.generate([prompt, prompt], 11) == [list(says[:11])] * 2
    assert asked[:3] == [("you: ", 11), ("you: Hi.", 8), ("you: Hi.\0", 7)]
    assert peer.about() == {"llama-cpp-python": "1"}
    del sys.modules["remote.text"]
