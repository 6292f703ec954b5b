"""Other engines as variants: what they are asked, what is refused, and that none is dropped."""

import shutil
import sys
from pathlib import Path

import pytest
from rich.console import Console

from sgjax.errors import ConfigError, ProgramError, UnsupportedBackend
from sgjax.lab.config import load_arms, load_experiment
from sgjax.lab.figures.draw import draw
from sgjax.lab.peers.engine import PeerEngine
from sgjax.lab.peers.environment import environment
from sgjax.lab.peers.process import PeerProcess
from sgjax.lab.peers.spec import PEERS, PeerSpec
from sgjax.lab.records import read_records
from sgjax.lab.runner import run_experiment
from sgjax.lab.summary import summarise_arms
from sgjax.tokens.byte import ByteTokenizer
from sgjax.types import Constraint, ConstraintKind, Request, SamplingParams, Wants
from tests.lab.fake_engine import FakeEngine

FILE = """
claim: we are fast
workloads: {mmlu: {type: mmlu, num_questions: 6}}
variants: {full: {}}
repeats: 2
metrics: [throughput_programs_per_s, accuracy]
figure: {type: bars, panels: [throughput_programs_per_s]}
peers: {names: [llama_cpp, vllm], expect: [full.accuracy >= 0.0 * llama_cpp.accuracy]}
"""


class Process:
    """A peer's process that answers each prompt with a letter."""

    error = None

    def __init__(self, fails_at=None):
        self.about = {"version": "1"}
        self.jobs = []
        self.fails_at = fails_at
        self.closed = False

    def ask(self, job):
        self.jobs.append(job)
        if len(self.jobs) == self.fails_at:
            return {"error": "it broke"}
        outputs = [list(b" A"[-job["new"] :]) for _ in job.get("prompts", [])]
        return {"outputs": outputs, "compiled": 0}

    def close(self):
        self.closed = True


def engine_of(process):
    return PeerEngine(process, PeerSpec("vllm"), ByteTokenizer(), "a-model", "float32")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "exp.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture
def run(tmp_path, file):
    def run(**processes):
        """Run with peers; a name without a process cannot be started."""

        def build(settings):
            spec = settings.pop("peer", None)
            if spec is None:
                return FakeEngine(**settings)
            if processes.get(spec["name"]) is None:
                raise UnsupportedBackend(f"{spec['name']} is not here")
            return engine_of(processes[spec["name"]])

        with open(tmp_path / "console.txt", "w") as console:
            finished = run_experiment(
                load_arms(file, [], pythons={}), tmp_path / "out", build, Console(file=console)
            )
        return read_records(finished.directory)[1]

    return run


def test_peers_join_the_measured_arm_only_where_they_are_asked_for(file):
    assert list(load_experiment(file, []).variants) == ["full"]
    [experiment] = load_arms(file, [], pythons={"vllm": "/a/python"})
    assert list(experiment.variants) == ["full", "llama_cpp", "vllm"]
    assert experiment.peer("vllm") == PeerSpec("vllm", "/a/python")
    assert experiment.peer("llama_cpp") == PeerSpec("llama_cpp")
    assert experiment.peer("full") is None
    assert len(experiment.expect) == 1
    simulated = ["base.executor={type: sim, hardware: a10g}"]
    assert list(load_arms(file, simulated, pythons={})[0].variants) == ["full"]


def test_unknown_peers_are_answered_with_the_nearest(file):
    file.write_text(FILE.replace("[llama_cpp, vllm]", "[llama_cp]"))
    with pytest.raises(ConfigError, match="unknown peer 'llama_cp'; did you mean 'llama_cpp'"):
        load_arms(file, [])


def test_a_peer_takes_no_variants_place(file):
    file.write_text(FILE.replace("full", "vllm"))
    with pytest.raises(ConfigError, match="peer 'vllm' has the name of a variant"):
        load_arms(file, [])


def test_a_peer_is_asked_all_prompts_at_once_after_it_forgot_those_before(run):
    process = Process()
    records = run(llama_cpp=process, vllm=Process())
    kinds = [job["kind"] for job in process.jobs]
    assert kinds == ["batch", "forget", "batch", "forget", "batch"]  # a warm-up and two runs
    assert [len(job["prompts"]) for job in process.jobs[::2]] == [6, 6, 6]
    assert process.closed
    peer = [r for r in records if r.variant == "llama_cpp"]
    ours = [r for r in records if r.variant == "full"]
    assert peer[0].metrics["prompt_tokens"] == ours[0].metrics["prompt_tokens"]
    assert peer[0].metrics["accuracy"] < 1
    assert "cache_hit_rate" not in peer[0].metrics  # nobody outside can know
    assert peer[0].config["engine"]["about"] == {"version": "1"}


def test_a_peer_that_cannot_start_stays_with_its_reason(run):
    records = run(llama_cpp=Process())
    [failed] = [r for r in records if r.variant == "vllm"]
    assert (failed.error, failed.metrics) == ("vllm is not here", {})
    [arm] = summarise_arms(records)
    assert arm.variants("mmlu") == ["full", "llama_cpp", "vllm"]
    assert "mmlu, vllm could not run here: vllm is not here" in arm.remarks
    assert arm.verdicts["mmlu"][0].holds is True
    assert draw([arm])["png"]


def test_a_peer_that_breaks_half_way_keeps_what_it_had(run):
    records = run(llama_cpp=Process(fails_at=5), vllm=Process())
    first, second = (r for r in records if r.variant == "llama_cpp")
    assert (first.error, first.repeat, second.repeat) == (None, 0, 1)
    assert "it broke" in second.error
    assert len([r for r in records if r.variant == "full"]) == 2


GREEDY = {"max_new_tokens": 1, "temperature": 0.0}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"wants": Wants.LOGPROBS}, "log-probabilities"),
        ({"constraint": Constraint(ConstraintKind.REGEX, "a+")}, "constraints"),
        ({"params": SamplingParams(**{**GREEDY, "temperature": 0.7})}, "temperature"),
        (
            {"params": SamplingParams(**GREEDY, stop=("x",))},
            "stop strings",
        ),
        ({"params": SamplingParams(**{**GREEDY, "max_new_tokens": 5})}, "end tokens"),
    ],
)
def test_what_a_peer_has_not_is_refused_and_never_asked(changes, reason):
    process, heard = Process(), []
    engine = engine_of(process)
    greedy = {"params": SamplingParams(**GREEDY)}
    request = Request(id="r", tokens=(1, 2), **{**greedy, **changes})
    engine.submit([request], lambda index, what: heard.append(what))
    engine.shutdown()
    assert isinstance(heard[0], ConfigError)
    assert reason in str(heard[0])
    assert process.jobs == []


def test_an_error_of_the_process_reaches_every_request():
    heard = []
    engine = engine_of(Process(fails_at=1))
    params = SamplingParams(**GREEDY)
    requests = [Request(id=str(i), tokens=(1,), params=params) for i in range(3)]
    engine.submit(requests, lambda index, what: heard.append((index, what)))
    engine.shutdown()
    assert sorted(index for index, _ in heard) == [0, 1, 2]
    assert all(isinstance(what, ProgramError) for _, what in heard)


def test_a_process_that_is_not_there_or_ends_says_so(tmp_path):
    with (tmp_path / "log").open("w") as log:
        assert "cannot be started" in PeerProcess("/no/python", {}, log).error
        gone = PeerProcess(sys.executable, {"engine": "nothing"}, log)
    assert "No module named 'remote.run_nothing'" in gone.error
    gone.close()
    with pytest.raises(UnsupportedBackend, match=r"vllm: .*run_nothing"):
        engine_of(gone)


def test_an_environment_that_cannot_be_made_says_so_and_a_complete_one_is_used(
    tmp_path, monkeypatch
):
    said = []
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(UnsupportedBackend, match=r"some-package cannot be installed .*--peer NAME"):
        environment(("some-package",), tmp_path, said.append)
    assert len(said) == 1
    [lock] = tmp_path.iterdir()
    made = lock.with_suffix("")
    made.mkdir()
    (made / ".complete").touch()
    python = environment(("some-package",), tmp_path, said.append)
    assert python == made / "bin" / "python"
    assert len(said) == 1


def test_every_peer_has_an_adapter():
    folder = Path(sys.modules["sgjax.lab.peers"].__file__).parent / "remote"
    assert all((folder / f"run_{peer.module}.py").is_file() for peer in PEERS.values())
