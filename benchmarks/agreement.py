"""How often weights in 8 bits choose the token that bfloat16 chooses, greedily.

The first engine writes; the others score what it wrote, token by token, so that one difference does
not make all that follows differ. Also printed: how far their own texts stay the same. Prompts are
the questions that ship with sgjax.

    python benchmarks/agreement.py --requests 32 --new 64
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import sgjax as sgl
from sgjax.lab.questions import shipped_questions

COMMON: dict[str, Any] = {"page_size": 16, "max_running": 16, "max_context_len": 1024}
ENGINES: dict[str, dict[str, Any]] = {
    "bfloat16": {"attention": "cpu_native"},
    "bfloat16, XLA": {"attention": "cpu"},
    "int8": {"attention": "cpu_native", "weights": {"type": "int8"}},
}
"""The first is what the others are compared with; the second shows what rounding alone does."""

Written = list[list[int]]


def write_and_score(
    model: str, options: dict[str, Any], prompts: Written, new: int, texts: Written | None
) -> tuple[Written, list[float]]:
    """Return an engine's own greedy texts, and per prompt its agreement with `texts`.

    Args:
        model: as `Engine` takes it.
        options: of the engine.
        prompts: token ids.
        new: tokens a text.
        texts: continuations to score; None scores none.
    """
    greedy = {"temperature": 0, "max_new_tokens": new, "ignore_eos": True}
    with sgl.Engine(model, kv_tokens=20_000, **COMMON, **options) as engine:
        own: Any = engine.generate(input_ids=prompts, sampling_params=greedy)
        if texts is None:
            return [r["output_ids"] for r in own], []
        shares = []
        for prompt, text in zip(prompts, texts, strict=True):
            scored: Any = engine.generate(
                input_ids=prompt + text,
                sampling_params={"temperature": 0, "max_new_tokens": 1},
                return_logprob=True,
                logprob_start_len=len(prompt) - 1,  # whose own entry is empty
                top_logprobs_num=1,
            )
            best = scored["meta_info"]["input_top_logprobs"][-len(text) :]
            shares.append(float(np.mean([b[0][1] == t for b, t in zip(best, text, strict=True)])))
    return [r["output_ids"] for r in own], shares


def common(a: list[int], b: list[int]) -> int:
    """Return how many tokens two texts begin with alike."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


def main() -> None:
    """Measure and print; write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    with sgl.Engine(args.model, **COMMON, kv_tokens=16) as engine:
        tokenizer = engine.tokenizer
    questions = shipped_questions()[1][: args.requests]
    prompts = [tokenizer.encode(q.text()) for q in questions]
    texts: Written | None = None
    found: dict[str, Any] = {}
    for name, options in ENGINES.items():
        own, shares = write_and_score(args.model, options, prompts, args.new, texts)
        if texts is None:
            texts = own
            continue
        alike = [common(a, b) for a, b in zip(own, texts, strict=True)]
        found[name] = {
            "tokens": args.new * len(prompts),
            "same_choice": float(np.mean(shares)),
            "same_first_token": float(np.mean([a > 0 for a in alike])),
            "mean_tokens_alike": float(np.mean(alike)),
            "same_texts": float(np.mean([a == args.new for a in alike])),
        }
        print(name, found[name], flush=True)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
