"""What the language's tests share."""

from collections.abc import Iterator

import pytest

import sgjax as sgl
from sgjax.lang.backends.base import Call, GenCall
from tests.lang.sim_engine import SimEngine


def echo(call: Call) -> str:
    """Answer a gen with its variable's name in brackets, a select with its last choice."""
    return f"<{call.name}>" if isinstance(call, GenCall) else call.choices[-1]


@pytest.fixture
def backend() -> sgl.ScriptedBackend:
    return sgl.ScriptedBackend(echo)


@pytest.fixture
def engine() -> Iterator[SimEngine]:
    engine = SimEngine()
    yield engine
    engine.shutdown()
