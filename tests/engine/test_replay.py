"""Engine.replay: a trace through the public engine is the trace through the bare scheduler."""

import pytest

import sgjax as sgl
from sgjax.sim.trace import Arrival, BlockTokens

SIM = {"type": "sim", "hardware": "a10g", "model": "llama-2-7b"}


def trace(count):
    return [
        Arrival(0.2 * i, BlockTokens([i % 3, 10 + i], 700), 20 + i, f"family {i % 3}")
        for i in range(count)
    ]


def test_a_trace_is_served_on_the_virtual_clock_and_counted_by_the_engine():
    with sgl.Engine(executor=SIM, page_size=16) as engine:
        served = engine.replay(trace(30))
        info = engine.get_server_info()
        assert served.refused == 0
        assert served.elapsed_s == pytest.approx(info["clock_s"])
        assert info["cached_tokens"] == served.cached_tokens.sum() > 0
        assert info["finished"] == 30
        again = engine.replay(trace(3))  # the clock goes on, the trace begins anew
        assert again.arrived_s.tolist() == [0.0, 0.2, 0.4]
        assert (again.ttft_s > 0).all()
        assert (again.ttft_s < 5).all()
        assert engine.generate("Hi", {"max_new_tokens": 3})["text"] != "   "


def test_a_real_engine_refuses_a_trace():
    with (
        sgl.Engine("random:tiny", kv_tokens=64) as engine,
        pytest.raises(sgl.UnsupportedBackend, match=r"executor: \{type: sim\}"),
    ):
        engine.replay(trace(1))
