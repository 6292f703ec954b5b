"""Made-up records of experiments, for figures and pages: plausible numbers, nothing was run."""

import dataclasses
import random

from sgjax.lab.config import parse_experiment
from sgjax.lab.metrics import METRICS
from sgjax.lab.provenance import digest, run_hash
from sgjax.lab.records import Record
from sgjax.lab.summary import summarise_arms

TYPICAL = dict.fromkeys(METRICS, 1.0) | {
    "throughput_programs_per_s": 3.0,
    "cache_hit_rate": 0.6,
    "optimal_cache_hit_rate": 0.8,
    "reachable_cache_hit_rate": 0.8,
    "prompt_tokens": 40_000.0,
    "computed_tokens": 15_000.0,
    "peak_kv_bytes": 3.4e8,
    "compilations": 0.0,
    "fairness": 0.9,
}


def made_up(data, executors=("sim", "cpu"), spread=0.1, seed=0):
    """Make the records of an experiment, one a workload, variant, seed and executor."""
    experiment = parse_experiment(data, "made up")
    rng = random.Random(seed)
    resolved = dataclasses.asdict(experiment)
    records = []
    for executor in executors:
        for workload in experiment.workloads:
            for variant in experiment.variants:
                factor = rng.uniform(0.2, 1.2)
                for run_seed in experiment.seeds:
                    config = {
                        "experiment": resolved,
                        "engine": experiment.engine_settings(variant, 0),
                    }
                    record = Record(
                        experiment=experiment.name, claim=experiment.claim, workload=workload,
                        variant=variant, seed=run_seed, repeat=0, executor=executor,
                        device="a device", model="a-model", dtype="float32", config=config,
                        config_hash=digest(config), run_hash=run_hash(config), git_sha="abc",
                        versions={"python": "3"},
                        started="2026-01-01T00:00:00+00:00", wall_s=1.0, answers_digest="a",
                        metrics={
                            name: _near(name, value * factor * rng.uniform(1 - spread, 1 + spread))
                            for name, value in TYPICAL.items()
                        },
                    )  # fmt: skip
                    records.append(record)
    return records


def made_up_arms(data, **options):
    """Return the summaries of made-up records."""
    return summarise_arms(made_up(data, **options))


def _near(name, value):
    return min(value, 1.0) if METRICS[name].unit == "%" else value
