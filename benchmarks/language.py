"""What the language costs: per primitive, and on top of the engine's own time for a batch.

    python benchmarks/language.py [model] [requests]

The model is random:tiny unless given; the heavier it is, the smaller the share. Two clocks: wall
time, and the process's CPU time, which other work on the machine disturbs less.
"""

import functools
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import sgjax as sgl

REPEATS = 2000
TOKENS = 8
PARAMS: dict[str, Any] = {"max_new_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
PREFIX = "Answer the question in a few words. "


def times(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall and CPU seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def primitives() -> None:
    """Print microseconds per primitive, on a backend that answers at once."""
    backend = sgl.ScriptedBackend({"v": "x", "c": "yes"})

    def program(body: Callable[[object], None]) -> sgl.SglFunction:
        @sgl.function
        def repeated(s):  # type: ignore[no-untyped-def]
            s += "p"
            for _ in range(REPEATS):
                body(s)

        return repeated

    def text(s):  # type: ignore[no-untyped-def]
        s += "x"

    def gen(s):  # type: ignore[no-untyped-def]
        s += sgl.gen("v", max_tokens=1)

    def gen_and_read(s):  # type: ignore[no-untyped-def]
        s += sgl.gen("v", max_tokens=1)
        s["v"]

    def select(s):  # type: ignore[no-untyped-def]
        s += sgl.select("c", ["yes", "no"])

    def scope(s):  # type: ignore[no-untyped-def]
        with s.var_scope("w"):
            s += ""

    def fork_and_join(s):  # type: ignore[no-untyped-def]
        group = s.fork(2)
        group.join()

    print(f"microseconds per primitive, mean of {REPEATS}, backend that answers at once")
    for body in (text, scope, gen, gen_and_read, select, fork_and_join):
        runner = program(body)
        runner.run(backend=backend)
        wall, cpu = min(times(functools.partial(runner.run, backend=backend)) for _ in range(3))
        print(
            f"  {body.__name__:14} wall {wall / REPEATS * 1e6:8.1f}  cpu {cpu / REPEATS * 1e6:8.1f}"
        )

    @sgl.function
    def empty(s):  # type: ignore[no-untyped-def]
        s += "p"

    wall, cpu = times(lambda: [empty.run(backend=backend) for _ in range(REPEATS)])
    print(f"  {'run':14} wall {wall / REPEATS * 1e6:8.1f}  cpu {cpu / REPEATS * 1e6:8.1f}")


@sgl.function
def ask(s, number):  # type: ignore[no-untyped-def]
    s += PREFIX + "Question " + number + ":" + sgl.gen("answer")


def batch(model: str, count: int) -> None:
    """Print the time of a batch on the engine alone and through the language."""
    numbers = [f"{i:05d}" for i in range(count)]
    prompts = [f"{PREFIX}Question {number}:" for number in numbers]
    rows = [{"number": number} for number in numbers]
    settings = {"dtype": "float32"} if model.startswith("random:") else {}
    with sgl.Engine(model, max_context_len=256, kv_tokens=32768, **settings) as engine:

        def alone() -> None:
            results = engine.generate(prompts, PARAMS)
            assert isinstance(results, list)
            assert len(results) == count

        def language() -> None:
            states = ask.run_batch(rows, backend=engine, **PARAMS)
            assert all(state["answer"] is not None for state in states)

        print(f"{count} one-gen programs of {TOKENS} tokens on {model}")
        ratios: list[list[float]] = []
        while len(ratios) < 3:
            compiled = engine.get_server_info()["compilations"]
            engine.flush_cache()
            own = times(alone)
            engine.flush_cache()
            both = times(language)
            if engine.get_server_info()["compilations"] > compiled:
                continue  # a shape occurred for the first time: its compilation is nobody's cost
            ratios.append([b / a for a, b in zip(own, both, strict=True)])
            print(
                f"  engine {own[0]:.2f} s (cpu {own[1]:.2f})   through run_batch {both[0]:.2f} s "
                f"(cpu {both[1]:.2f})"
            )
        wall, cpu = (statistics.median(r[i] for r in ratios) - 1 for i in (0, 1))
        print(f"  added, median: wall {wall:+.1%}, cpu {cpu:+.1%} (wanted: at most +5%)")


def main() -> None:
    """Print both tables."""
    model = sys.argv[1] if len(sys.argv) > 1 else "random:tiny"
    primitives()
    batch(model, int(sys.argv[2]) if len(sys.argv) > 2 else 1000)


if __name__ == "__main__":
    main()
