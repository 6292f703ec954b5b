"""One engine over several processes (jax.distributed): the first schedules, the others follow.

DEVICE. Imports jax and its neighbour pack. A step is a program over all devices, so every process
must run the same ones in the same order. Process 0 has scheduler, cache and requests; before it
runs something it tells the others what, and they run it on their part of weights and K/V.
"""

import pickle
from dataclasses import dataclass
from typing import Protocol, final

import jax
import numpy as np
from jax.experimental import multihost_utils
from numpy.typing import NDArray

from sgjax.engine.pack import Shape
from sgjax.errors import ConfigError
from sgjax.kernels.batch import Batch


@dataclass(frozen=True)
class RunStep:
    """Run a step."""

    shape: Shape
    batch: Batch


@dataclass(frozen=True)
class WriteMasks:
    """Write rows u32[n, W] of the mask table from a row on."""

    rows: NDArray[np.uint32]
    at: int


Order = RunStep | WriteMasks | None
"""What the others are told; None ends them."""


class Hosts(Protocol):
    """Whoever must run what this process runs."""

    def tell(self, order: Order) -> None:
        """Let the others run it; returns when they know."""
        ...


@final
class Alone:
    """There is nobody else."""

    def tell(self, order: Order) -> None:
        """See `Hosts`."""


@final
class Followers:
    """The other processes of jax.distributed, each in `follow`."""

    def tell(self, order: Order) -> None:
        """See `Hosts`."""
        _broadcast(pickle.dumps(order), leads=True)


def other_hosts() -> Hosts:
    """Return those that this process leads: none unless it is the first of several."""
    return Followers() if jax.process_count() > 1 and jax.process_index() == 0 else Alone()


def hear() -> Order:
    """Return what process 0 tells next."""
    order: Order = pickle.loads(_broadcast(b"", leads=False))
    return order


def check_processes(tensor: int, kv_tokens: int | None) -> None:
    """Refuse settings in which processes would differ.

    Raises:
        ConfigError: some device would be left out, or each process would choose its own pool.
    """
    if jax.process_count() == 1:
        return
    if tensor != jax.device_count():
        raise ConfigError(
            f"mesh: tensor={tensor} leaves out devices of some of {jax.process_count()} processes; "
            f"it must be all {jax.device_count()}"
        )
    if kv_tokens is None:
        raise ConfigError(
            f"kv_tokens=None lets each of {jax.process_count()} processes choose; give a number"
        )


def _broadcast(data: bytes, leads: bool) -> bytes:
    """Return process 0's bytes in every process."""
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(data)), is_source=leads))
    # Powers of two: each size is a program.
    padded = np.zeros(1 << (size - 1).bit_length(), np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    told = multihost_utils.broadcast_one_to_all(padded, is_source=leads)
    return np.asarray(told)[:size].tobytes()
