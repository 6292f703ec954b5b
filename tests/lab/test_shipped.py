"""The experiments that ship can begin: one program of each workload, where it is simulated."""

from dataclasses import replace
from pathlib import Path

import pytest

import sgjax as sgl
from sgjax.lab.config import load_arms

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SIMULATED = [
    (path, arm)
    for path in sorted(EXPERIMENTS.glob("*.yaml"))
    for arm in load_arms(path, [], quick=True)
    if arm.arm == "simulated" and path.stem != "json_schema"  # asks no engine for programs
]


@pytest.mark.parametrize(("path", "arm"), SIMULATED, ids=[path.stem for path, _ in SIMULATED])
def test_a_program_of_each_simulated_workload_runs(path, arm, monkeypatch):
    monkeypatch.chdir(EXPERIMENTS.parent)  # some name the project's own files
    variant = next(iter(arm.variants))
    with sgl.Engine(**arm.engine_settings(variant, seed=0)) as engine:
        for workload in arm.workloads.values():
            task = workload.load(arm.data, seed=0).first(1)
            assert len(task.run(engine, arm.language(variant)).outcomes) == 1


def test_starvation_is_judged_at_the_shares_of_capacity_that_it_names():
    [arm] = load_arms(EXPERIMENTS / "starvation.yaml", [])
    settings = arm.engine_settings("lpm", seed=0)
    at_once = replace(arm.workloads["load_0_9"], rate_per_s=1e6).load(arm.data, seed=0)
    with sgl.Engine(**settings) as engine:
        at_once.run(engine, arm.language("lpm"))
        capacity = at_once.num_programs / engine.now()
    rates = {name: workload.rate_per_s / capacity for name, workload in arm.workloads.items()}
    assert rates == pytest.approx({"load_0_7": 0.7, "load_0_9": 0.9, "load_1_1": 1.1}, rel=0.03)
