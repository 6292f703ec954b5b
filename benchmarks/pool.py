"""Step time over K/V pools of 0.1 to 2 GB: flat, if the pool is updated in place.

The same decode of one batch on engines that differ in `kv_tokens` alone, in turn, medians.

    python benchmarks/pool.py [--repeats 5]
"""

import argparse
import statistics

import sgjax as sgl
from sgjax.models.presets import load_preset

MODEL = "smollm2-135m"
SIZES_GB = (0.1, 0.5, 1.0, 2.0)
BATCH, NEW = 8, 24


def step_ms(engine: sgl.Engine) -> float:
    """Return the milliseconds a decode step takes on the device, from the engine's counters."""
    prompts = [f"Story number {i}: once upon a time" for i in range(BATCH)]
    params = {"temperature": 0, "max_new_tokens": NEW, "ignore_eos": True}
    engine.generate(prompts, params)  # compiles, and puts the prompts into the cache
    before = engine.get_server_info()
    engine.generate(prompts, params)
    after = engine.get_server_info()
    steps = after["forward_passes"] - before["forward_passes"]
    return float(1e3 * (after["device_s"] - before["device_s"]) / steps)


def main() -> None:
    """Print a row per pool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    token_bytes = load_preset(MODEL).config.kv_bytes_per_token("bfloat16")
    engines = {
        size: sgl.Engine(MODEL, kv_tokens=int(size * 1e9 / token_bytes)) for size in SIZES_GB
    }
    times: dict[float, list[float]] = {size: [] for size in SIZES_GB}
    for _ in range(repeats):
        for size, engine in engines.items():
            times[size].append(step_ms(engine))
    base = statistics.median(times[SIZES_GB[0]])
    for size, values in times.items():
        middle = statistics.median(values)
        print(f"pool {size:4.1f} GB: {middle:6.1f} ms a step of {BATCH}  ({middle / base:.2f} x)")
    for engine in engines.values():
        engine.shutdown()


if __name__ == "__main__":
    main()
