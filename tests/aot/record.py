"""Record the GPU kernel's figures for the jax installed: python -m tests.aot.record."""

import json

from tests.aot.test_compile import FIGURES, GPUS, TILES, compiled


def main() -> None:
    """Write figures.json; other versions' figures stay."""
    figures = json.loads(FIGURES.read_text())
    for target in GPUS:
        for tile in TILES:
            verdict = compiled(target, "llama-3-8b", "kernel", tile=tuple(tile.items()))
            print(target, tile, verdict.status, verdict.reason)
            here = figures.setdefault(verdict.versions["jax"], {})
            here[f"{target} {tile}"] = [verdict.registers, verdict.shared_bytes, verdict.spills]
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
