"""One part of device_check.py, in a process of its own: python device_part.py RESULTS STEPS.

STEPS is a JSON list of steps (see device_check.Step). Each one's results are written as they come,
then that it is done; a step that fails does not end the others.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
from device_engine import engine, logprobs
from device_kernels import cascade, decode, parity
from device_results import Results

Measure = Callable[..., Iterator[tuple[str, dict[str, Any]]]]

MEASURES: dict[str, Measure] = {
    "parity": parity, "decode": decode, "cascade": cascade, "engine": engine, "logprobs": logprobs
}  # fmt: skip


def measure(results: Results, steps: list[dict[str, Any]]) -> None:
    """Measure steps one after the other."""
    for step in steps:
        try:
            for name, value in MEASURES[step["measure"]](**step["settings"]):
                results.add(name, value)
            results.add("done", step["name"])
        except Exception as error:  # a machine is paid for: the other steps are worth having
            told = f"{type(error).__name__}: {error}"[:2000]
            results.add("failed", {"step": step["name"], "error": told})


def main() -> None:
    """Measure what is asked for."""
    results = Results(Path(sys.argv[1]))
    results.know(device=jax.devices()[0].device_kind, jax=jax.__version__)
    measure(results, json.loads(sys.argv[2]))


if __name__ == "__main__":
    main()
