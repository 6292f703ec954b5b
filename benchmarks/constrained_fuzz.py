"""Random constraints on random weights: no finished output breaks its constraint.

Requests with random patterns and schemas at temperature 1.5, a tenth of them plain, in batches of
all kinds; every jump mode in turn. Plain rows are compared with their solo run.

    python benchmarks/constrained_fuzz.py --requests 10000
"""

import argparse
import collections
import json
import random
import re
from collections.abc import Mapping
from typing import Any

import jsonschema
from grammar import random_regex

import sgjax as sgl
from sgjax.lab.workloads.json_schemas import SHIPPED

JUMPS = ("none", "tokens", "retokenize", "string")
BATCH = 250


def main() -> None:
    """Run as many requests as asked for, a quarter in each jump mode."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=10_000)
    args = parser.parse_args()
    rows = [json.loads(line) for line in SHIPPED.read_text(encoding="utf-8").splitlines()]
    schemas = [row["schema"] for row in rows if row["id"] != "broken"]
    for seed, jump in enumerate(JUMPS):
        counts: collections.Counter[str] = collections.Counter()
        grammar = {"jump": {"type": jump}, "table_bytes": 65_536}
        with sgl.Engine(
            "random:tiny", dtype="float32", max_context_len=256, max_running=32, kv_tokens=4096,
            token_budget=512, seed=seed, debug_checks=True, grammar=grammar,
        ) as engine:  # fmt: skip
            rng = random.Random(seed)
            for _ in range(max(1, args.requests // len(JUMPS) // BATCH)):
                counts += run(engine, schemas, rng)
        print(jump, dict(sorted(counts.items())), flush=True)


def run(
    engine: sgl.Engine, schemas: list[dict[str, Any]], rng: random.Random
) -> collections.Counter[str]:
    """Run one batch; count how its requests ended."""
    asked = [(f"p{rng.randrange(50)}", draw(schemas, rng)) for _ in range(BATCH)]
    results: Any = engine.generate([prompt for prompt, _ in asked], [params for _, params in asked])
    counts: collections.Counter[str] = collections.Counter()
    for (prompt, params), result in zip(asked, results, strict=True):
        kind = next((k for k in ("regex", "json_schema") if k in params), "plain")
        ended = result["meta_info"]["finish_reason"]["type"]
        counts[f"{kind} {ended}"] += 1
        if kind == "plain" and rng.random() < 0.1:
            alone: Any = engine.generate(prompt, params)
            counts["plain as alone"] += alone["output_ids"] == result["output_ids"]
            counts["plain compared"] += 1
        if kind != "plain" and ended == "stop" and not keeps(params, result["text"]):
            counts["BROKEN"] += 1
            print(params, repr(result["text"]))
    return counts


def draw(schemas: list[dict[str, Any]], rng: random.Random) -> dict[str, Any]:
    """Return the sampling parameters of a random request."""
    kind = rng.random()
    if kind < 0.1:
        return {"temperature": 0.0, "max_new_tokens": 6, "ignore_eos": True}
    if kind < 0.8:
        return {"regex": random_regex(rng, 3), "temperature": 1.5, "max_new_tokens": 80}
    return {"json_schema": rng.choice(schemas), "temperature": 1.5, "max_new_tokens": 120}


def keeps(params: Mapping[str, Any], text: str) -> bool:
    """Return whether a finished text keeps to its constraint."""
    if "regex" in params:
        return re.fullmatch(params["regex"], text, re.ASCII) is not None
    try:
        jsonschema.validate(json.loads(text), params["json_schema"])
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


if __name__ == "__main__":
    main()
