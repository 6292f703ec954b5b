"""What each policy of the zoo promises, through the real scheduler."""

import itertools
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgjax.errors import ConfigError
from sgjax.schedule.spec import DlpmSpec, FcfsSpec, HrrnSpec, KLpmSpec, LpmSpec, VtcSpec
from tests.schedule.harness import Bench, Setup, ask, family, words

ZOO = [KLpmSpec(k=0), KLpmSpec(k=2), HrrnSpec(), VtcSpec(), DlpmSpec(quantum=50)]


def admissions(policy, requests, **sizes):
    """Serve all requests one at a time; return who was admitted when, and the bench."""
    bench = Bench(Setup(policy=policy, **{"max_running": 1, "growth": 0.0, **sizes}))
    bench.add(*requests)
    bench.run()
    order = list(dict.fromkeys(row.seq.request.id for plan in bench.plans for row in plan.rows))
    return order, bench


def mixed(seed, count=24, new=3):
    """Two families of long prefixes and some loners, of two clients."""
    rng = random.Random(seed)
    prompts = family(rng, count // 3, 30, 4) + family(rng, count // 3, 20, 6)
    prompts += [words(rng, 15) for _ in range(count - len(prompts))]
    rng.shuffle(prompts)
    return [ask(str(i), p, new, client="ab"[i % 2]) for i, p in enumerate(prompts)]


@pytest.mark.parametrize("policy", ZOO, ids=lambda policy: policy.type)
@given(seed=st.integers(0, 999), tight=st.booleans())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_everybody_is_served_and_nothing_leaks(policy, seed, tight):
    order, bench = admissions(
        policy, mixed(seed), max_running=3, pages=60 if tight else 1000, growth=0.5
    )
    assert sorted(order) == sorted(bench.done)
    assert len(bench.done) == 24


def test_k_of_zero_is_arrival_order_and_a_large_k_is_longest_prefix():
    requests = mixed(1)
    fcfs, lpm = (admissions(p, requests)[0] for p in (FcfsSpec(), LpmSpec()))
    assert fcfs != lpm
    assert admissions(KLpmSpec(k=0), requests)[0] == fcfs
    assert admissions(KLpmSpec(k=99), requests)[0] == lpm


def test_every_third_pick_of_two_lpm_is_the_oldest():
    order, _ = admissions(KLpmSpec(k=2), mixed(2))
    waiting = [str(i) for i in range(24)]
    for pick, name in enumerate(order):
        if pick % 3 == 2:
            assert name == waiting[0]
        waiting.remove(name)


def test_response_ratio_serves_short_work_first_but_never_forgets_long_work():
    rng = random.Random(3)
    long = ask("long", words(rng, 200), 1)
    bench = Bench(Setup(policy=HrrnSpec(), max_running=1))
    bench.add(ask("first", words(rng, 50), 1), long)
    served = []
    for i in range(400):
        bench.add(ask(f"short {i}", words(rng, 20), 1))
        bench.step()
        served = [name for name in bench.done if name not in served] + served
        if "long" in bench.done:
            break
    # 200 tokens against 20: the long one's ratio overtakes that of the shorts in their queue.
    shorts = sum(name.startswith("short") for name in bench.done)
    assert 3 < shorts < 200


def service(bench, weight=2.0):
    """Tokens served to each client so far, as VTC counts."""
    totals = {"a": 0.0, "b": 0.0}
    for seq in {id(r.seq): r.seq for p in bench.plans for r in p.rows}.values():
        totals[seq.request.client] += seq.num_prompt + weight * seq.num_output
    return totals


def test_virtual_counters_keep_backlogged_clients_within_one_request():
    rng = random.Random(4)
    bench = Bench(Setup(policy=VtcSpec(), max_running=1))
    # Client a asks for three times as much, and first.
    bench.add(*(ask(f"a{i}", words(rng, 60), 9, client="a") for i in range(20)))
    bench.add(*(ask(f"b{i}", words(rng, 20), 3, client="b") for i in range(60)))
    while bench.scheduler.num_waiting > 20:
        bench.step()
        totals = service(bench)
        assert abs(totals["a"] - totals["b"]) <= 60 + 2 * 9 + 20 + 2 * 3
    fcfs, _ = admissions(FcfsSpec(), [])
    assert fcfs == []


def test_a_client_that_was_away_saves_up_nothing():
    rng = random.Random(5)
    bench = Bench(Setup(policy=VtcSpec(), max_running=1))
    bench.add(*(ask(f"a{i}", words(rng, 20), 1, client="a") for i in range(30)))
    while bench.scheduler.num_waiting > 20:
        bench.step()
    bench.add(*(ask(f"b{i}", words(rng, 20), 1, client="b") for i in range(20)))
    start = len(bench.plans)
    while bench.scheduler.num_waiting > 20:
        bench.step()
    names = [p.rows[0].seq.request.id[0] for p in bench.plans[start:] if p.rows[0].start == 0]
    assert 0.4 <= names.count("a") / len(names) <= 0.6


def test_deficits_with_one_client_are_longest_prefix_first():
    requests = [ask(str(i), r.tokens, 3) for i, r in enumerate(mixed(6))]
    assert admissions(DlpmSpec(quantum=10), requests)[0] == admissions(LpmSpec(), requests)[0]


def shared_by_clients(seed=7):
    """Client a has many requests of one family; b a few of another; both families alternate."""
    rng = random.Random(seed)
    a, b = family(rng, 30, 60, 5), family(rng, 10, 60, 5)
    requests = [ask(f"a{i}", p, 2, client="a") for i, p in enumerate(a)]
    requests += [ask(f"b{i}", p, 2, client="b") for i, p in enumerate(b)]
    rng.shuffle(requests)
    return requests


def test_deficits_bound_what_locality_may_cost_another_client():
    requests = shared_by_clients()
    # Room for one family: longest prefix first serves one client out before the other.
    lpm, lpm_bench = admissions(LpmSpec(), requests, pages=90)
    dlpm, dlpm_bench = admissions(DlpmSpec(quantum=100), requests, pages=90)
    vtc, vtc_bench = admissions(VtcSpec(), requests, pages=90)

    def changes(order):
        return sum(x[0] != y[0] for x, y in itertools.pairwise(order))

    assert changes(lpm) == 1
    assert changes(lpm) < changes(dlpm) < changes(vtc)
    computed = [b.scheduler.stats.computed_tokens for b in (lpm_bench, dlpm_bench, vtc_bench)]
    assert computed == sorted(computed)
    assert computed[0] < computed[1] < computed[2]


def test_impossible_parameters_are_refused():
    with pytest.raises(ConfigError, match="k=-1 is negative"):
        KLpmSpec(k=-1)
    with pytest.raises(ConfigError, match="quantum=0 is not allowed"):
        DlpmSpec(quantum=0)
