"""Policies and eviction orders of the user's own, named in a configuration."""

import re

import pytest

import sgjax as sgl
from sgjax.errors import ConfigError

MINE = """
from sgjax.cache.orders import EvictionOrder
from sgjax.schedule.policies import Policy


class LastCome(Policy):
    tracks_prefix = False

    def __init__(self, sign=-1):
        self.sign = sign

    def key(self, seq):
        return (self.sign * seq.place,)


class Forgets(LastCome):
    def order(self, queue, now_s):
        return list(queue.in_order())[:-1]


class Repeats(LastCome):
    def order(self, queue, now_s):
        return [seq for seq in queue.in_order() for _ in range(2)]


class SaysNothing(Policy):
    pass


class NoOrder(EvictionOrder):
    pass


def breaks():
    return {}["key"]


class MostRecent(EvictionOrder):
    def priority(self, node):
        return (-node.last_used,)


def nothing():
    return None
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return str(path)


def serve(policy) -> list[dict]:
    """Return what is said of three requests, served one at a time."""
    sim = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b"}
    with sgl.Engine(executor=sim, policy=policy, max_running=1, kv_tokens=256) as engine:
        params = {"max_new_tokens": 4, "ignore_eos": True}
        prompts = [[100 * i + j for j in range(20)] for i in range(1, 4)]
        results = engine.generate(input_ids=prompts, sampling_params=params)
    return [result["meta_info"] for result in results]


def waits(policy) -> list[float]:
    """Return when each of three requests had its first token."""
    return [info["ttft_s"] for info in serve(policy)]


def test_a_policy_of_ones_own_orders_the_queue(mine) -> None:
    own = {"type": "python", "file": mine, "function": "LastCome"}
    assert waits(own) == waits({"type": "fcfs"})[::-1]
    assert waits(own | {"options": {"sign": 1}}) == waits({"type": "fcfs"})


@pytest.mark.parametrize(
    ("function", "said"), [("Forgets", "of . waiting requests"), ("Repeats", "request .* twice")]
)
def test_an_order_that_is_no_permutation_is_an_error_and_not_for_ever(mine, function, said) -> None:
    last = serve({"type": "python", "file": mine, "function": function})[0]["finish_reason"]
    assert last["type"] == "abort"
    assert re.search(f"{function} of .*{said}", last["message"])


def test_an_eviction_order_of_ones_own_is_used(mine) -> None:
    from sgjax.cache.spec import build_order
    from sgjax.own import PythonSpec

    order = build_order(PythonSpec(mine, "MostRecent"))
    assert type(order).__name__ == "MostRecent"
    with pytest.raises(ConfigError, match=r"NoOrder of .* failed: TypeError: Can't instantiate"):
        build_order(PythonSpec(mine, "NoOrder"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"file": "nowhere.py"}, "nowhere.py is not there"),
        ({"function": "First"}, "no function 'First', nor a class"),
        ({"options": {"singe": 1}}, r"do not fit LastCome\(sign=-1\)"),
        ({"function": "SaysNothing"}, "SaysNothing of .* does not set 'tracks_prefix'"),
        ({"function": "breaks"}, "breaks of .* failed: KeyError: 'key'"),
        ({"function": "nothing"}, r"gave a NoneType; a sgjax.schedule.policies.Policy is needed"),
    ],
)
def test_what_will_not_do_is_said_before_anything_starts(mine, change, said) -> None:
    policy = {"type": "python", "file": mine, "function": "LastCome"} | change
    with pytest.raises(ConfigError, match=said):
        sgl.Engine(executor={"type": "sim", "hardware": "a10g"}, policy=policy)
