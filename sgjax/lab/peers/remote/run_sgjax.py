"""sgjax, through its public Engine."""

from importlib.metadata import version
from typing import Any

from remote.base import Decoded, Outputs, Prompts

import sgjax as sgl


class SgjaxPeer:
    """`sgl.Engine` with the tree cache."""

    def __init__(self, engine: sgl.Engine, about: dict[str, str]) -> None:
        self._engine = engine
        self._about = about

    def about(self) -> dict[str, str]:
        """See `Peer`."""
        return self._about

    def generate(self, prompts: Prompts, new: int) -> Outputs:
        """See `Peer`."""
        return [result["output_ids"] for result in self._run(prompts, new)]

    def decode(self, prompts: Prompts, new: int) -> Decoded:
        """See `Peer`; the prompts come in through the prefix cache."""
        self._run(prompts, 1)
        results = self._run(prompts, new)
        firsts = [r["meta_info"]["ttft_s"] for r in results]
        last = max(r["meta_info"]["e2e_latency_s"] for r in results)
        if max(firsts) - min(firsts) > (last - max(firsts)) / new:
            raise RuntimeError("the sequences did not start in one step; give K/V more room")
        return Decoded(
            outputs=[r["output_ids"] for r in results],
            seconds=last - max(firsts),
            tokens=len(prompts) * (new - 1),
        )

    def forget(self) -> None:
        """See `Peer`."""
        if not self._engine.flush_cache():
            raise RuntimeError("the cache could not be emptied")

    def compilations(self) -> int:
        """See `Peer`."""
        return int(self._engine.get_server_info()["compilations"])

    def _run(self, prompts: Prompts, new: int) -> list[dict[str, Any]]:
        params = {"max_new_tokens": new, "temperature": 0.0, "ignore_eos": True}
        results = self._engine.generate(input_ids=prompts, sampling_params=params)
        assert isinstance(results, list)
        return results


def load(model: str, dtype: str, threads: int, options: dict[str, Any]) -> SgjaxPeer:
    """Return the engine; `threads` is the whole machine's, which is what XLA takes."""
    engine = sgl.Engine(model=model, dtype=dtype, **options)
    info = engine.get_server_info()
    about = {"sgjax": sgl.__version__, "jax": version("jax")}
    about |= {name: info[name] for name in ("attention", "linear")}
    about |= {k: str(v) for k, v in options.items() if k not in about}
    return SgjaxPeer(engine, about)
