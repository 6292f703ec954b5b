"""Bounded waits at nearly the same hit rate: two families, a pool that holds one prefix of both."""

import dataclasses

import pytest

from sgjax.lab.workloads.base import DataSource
from sgjax.lab.workloads.families import FamiliesWorkload, Family
from sgjax.models.presets import load_preset
from sgjax.schedule.spec import AgedLpmSpec, FcfsSpec, LpmSpec
from sgjax.sim import Roofline, load_hardware
from sgjax.sim.replay import ReplayConfig, replay
from sgjax.theory.fairness import by_family

COST = Roofline(load_preset("llama-2-7b").config, load_hardware("a10g"), "bfloat16", "bfloat16")
CONFIG = ReplayConfig(kv_tokens=3500, page_size=16, max_running=64, token_budget=2048)
FAMILIES = {
    "major": Family(share=0.8, prefix=2000, own=60, output=40),
    "minor": Family(share=0.2, prefix=2000, own=60, output=40),
}
REQUESTS = 250


def serve(policy, rate):
    workload = FamiliesWorkload(FAMILIES, REQUESTS, rate)
    trace = workload.load(DataSource(), seed=0).arrivals
    return replay(trace, dataclasses.replace(CONFIG, policy=policy), COST)


def minor_p99(served):
    return by_family(served.queued_s, served.families)["minor"].p99_s


@pytest.fixture(scope="module")
def capacity():
    """Requests a second that longest-prefix-first serves when all wait from the beginning."""
    return REQUESTS / serve(LpmSpec(), rate=1e6).elapsed_s


@pytest.mark.parametrize("load", [0.7, 0.9, 1.1])
def test_aged_lpm_bounds_the_wait_and_keeps_the_hits(capacity, load):
    fcfs, lpm, aged = (
        serve(policy, load * capacity)
        for policy in (FcfsSpec(), LpmSpec(), AgedLpmSpec(max_wait_s=5, hold_s=8))
    )
    assert minor_p99(aged) <= 2 * minor_p99(fcfs)
    assert minor_p99(aged) <= 0.6 * minor_p99(lpm)
    assert aged.hit_rate >= 0.95 * lpm.hit_rate


def test_without_a_hold_overload_turns_ageing_into_arrival_order(capacity):
    plain = serve(AgedLpmSpec(max_wait_s=1), 1.1 * capacity)
    held = serve(AgedLpmSpec(max_wait_s=1, hold_s=8), 1.1 * capacity)
    assert held.hit_rate > plain.hit_rate + 0.05
    assert minor_p99(held) < minor_p99(plain)
