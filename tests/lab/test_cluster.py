"""Data-parallel workers on one virtual clock: one is an engine, four are nearly four times one."""

import pytest
from rich.console import Console

import sgjax as sgl
from sgjax.errors import ConfigError, UnsupportedBackend
from sgjax.lab.cluster import Cluster, ClusterSpec
from sgjax.lab.config import parse_experiment
from sgjax.lab.records import read_records
from sgjax.lab.runner import run_experiment
from sgjax.lab.workloads import DataSource, FamiliesWorkload
from sgjax.lab.workloads.families import Family
from sgjax.lang.spec import LanguageSpec
from sgjax.serve.router import RoundRobinSpec

SETTINGS = {
    "executor": {"type": "sim", "hardware": "a10g", "model": "llama-2-7b"},
    "page_size": 16, "kv_tokens": 3000, "token_budget": 2048, "seed": 0,
}  # fmt: skip
SUBJECTS = {"subject": Family(share=1, prefix=300, own=30, output=2, copies=16)}


def serve(engine, rate=1e5, requests=320):
    task = FamiliesWorkload(SUBJECTS, requests, rate).load(DataSource(), seed=0)
    try:
        ran = task.run(engine, LanguageSpec())
        return ran, engine.get_server_info(), engine.now()
    finally:
        engine.shutdown()


def test_a_cluster_of_one_serves_like_an_engine():
    one, engine = (
        serve(e, rate=20) for e in (Cluster(ClusterSpec(1), SETTINGS), sgl.Engine(**SETTINGS))
    )
    assert one[0].outcomes == engine[0].outcomes
    assert one[2] == engine[2]
    for name in ("cached_tokens", "forward_passes", "peak_pages"):
        assert one[1][name] == engine[1][name]


def test_aware_workers_scale_and_keep_the_hits():
    _, one, one_s = serve(Cluster(ClusterSpec(1), SETTINGS))
    _, aware, aware_s = serve(Cluster(ClusterSpec(4), SETTINGS))
    _, turns, turns_s = serve(Cluster(ClusterSpec(4, RoundRobinSpec()), SETTINGS))
    assert aware["cached_tokens"] >= 0.98 * one["cached_tokens"]
    assert turns["cached_tokens"] < 0.9 * one["cached_tokens"]
    assert one_s / aware_s > 3.2 > one_s / turns_s
    assert aware["device"] == "4 x NVIDIA A10G"
    assert aware["pages"]["total"] == 4 * one["pages"]["total"]


def test_requests_over_time_go_to_workers_on_one_clock():
    ran, _, _ = serve(Cluster(ClusterSpec(3, RoundRobinSpec()), SETTINGS), rate=2, requests=30)
    # So slow that nobody waits, and every answer ends before the next request.
    assert max(o.queued_s for o in ran.outcomes) < 0.1
    assert {o.family for o in ran.outcomes} <= {f"subject {i}" for i in range(16)}


def test_an_experiment_names_clusters_beside_engines(tmp_path):
    experiment = parse_experiment(
        {
            "name": "dp",
            "claim": "c",
            "base": {key: value for key, value in SETTINGS.items() if key != "seed"},
            "variants": {"engine": {}, "two": {"cluster": {"workers": 2}}},
            "workloads": {
                "w": {
                    "type": "families",
                    "families": {"f": {"share": 1, "prefix": 100, "own": 9, "output": 1}},
                    "num_requests": 8,
                    "rate_per_s": 1000,
                }
            },
            "warmup": 0,
        },
        "test",
    )
    finished = run_experiment(
        [experiment], tmp_path, lambda s: sgl.Engine(**s), Console(quiet=True)
    )
    _, records = read_records(finished.directory)
    assert [r.device for r in records] == ["NVIDIA A10G", "2 x NVIDIA A10G"]
    assert records[1].config["engine"]["cluster"]["workers"] == 2


def test_what_a_cluster_cannot_do_is_refused():
    with pytest.raises(UnsupportedBackend, match="share a virtual clock"):
        Cluster(ClusterSpec(2), {"model": "random:tiny"})
    with pytest.raises(ConfigError, match="workers >= 1"):
        ClusterSpec(0)
    cluster = Cluster(ClusterSpec(2), SETTINGS)
    with pytest.raises(UnsupportedBackend, match="runs no programs"):
        cluster.submit([], lambda index, heard: None)
    cluster.shutdown()
