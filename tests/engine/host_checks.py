"""A process of an engine over two, two devices each: python -m tests.engine.host_checks RANK PORT.

The last line that the first prints is its texts as JSON; the second follows.
"""

import json
import sys

import jax

import sgjax as sgl

ENGINE = {
    "model": "random:tiny",
    "dtype": "float32",
    "mesh": {"tensor": 4},
    "kv_tokens": 512,
    "max_context_len": 128,
    "max_running": 4,
}
PROMPTS = ["one two three four", "one two three five"]
PARAMS = [
    {"max_new_tokens": 6, "temperature": 0},
    {"max_new_tokens": 6, "temperature": 0.8, "seed": 3, "regex": "[a-f]{4,6}"},
]


def texts(**changes) -> list[list[int]]:
    """Return what an engine says."""
    with sgl.Engine(**{**ENGINE, **changes}) as engine:
        results = engine.generate(PROMPTS, PARAMS)
        return [r["output_ids"] for r in results]


def main() -> None:
    """Lead or follow."""
    rank, port = int(sys.argv[1]), sys.argv[2]
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=rank)
    if rank:
        from sgjax.engine.build import follow

        follow(ENGINE)
    else:
        print(json.dumps(texts()), flush=True)


if __name__ == "__main__":
    main()
