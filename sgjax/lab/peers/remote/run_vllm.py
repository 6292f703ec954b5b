"""vLLM's CPU build, in this process, with prefix caching unless options say otherwise."""

import os
import time
from typing import Any

# Read by vLLM when it is imported: an engine in this process, K/V of 2 GB, few messages.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", ",".join(map(str, os.sched_getaffinity(0))))

import torch
import vllm
from remote.base import Decoded, Outputs, Prompts

DEFAULTS = {
    "block_size": 32,
    "enforce_eager": True,
    "max_num_seqs": 64,
    "enable_prefix_caching": True,
}
"""32-token blocks: the default of 128 recomputes more of a shared prefix."""


class VllmPeer:
    """`vllm.LLM`; without a tokenizer, as ids go in and ids come out."""

    def __init__(self, llm: vllm.LLM, about: dict[str, str]) -> None:
        self._llm = llm
        self._about = about

    def about(self) -> dict[str, str]:
        """See `Peer`."""
        return self._about

    def generate(self, prompts: Prompts, new: int) -> Outputs:
        """See `Peer`."""
        asked = [{"prompt_token_ids": p} for p in prompts]
        results = self._llm.generate(asked, _params(new), use_tqdm=False)
        return [list(r.outputs[0].token_ids) for r in results]

    def decode(self, prompts: Prompts, new: int) -> Decoded:
        """See `Peer`; the prompts come in through the prefix cache, then the engine is stepped."""
        self.generate(prompts, 1)
        engine = self._llm.llm_engine
        for i, prompt in enumerate(prompts):
            engine.add_request(str(i), {"prompt_token_ids": prompt}, _params(new))
        outputs: Outputs = [[] for _ in prompts]
        started, tokens_then = 0.0, 0
        while engine.has_unfinished_requests():
            for result in engine.step():
                outputs[int(result.request_id)] = list(result.outputs[0].token_ids)
            if not started and all(outputs):
                started, tokens_then = time.perf_counter(), sum(map(len, outputs))
        seconds = time.perf_counter() - started
        return Decoded(outputs, seconds, sum(map(len, outputs)) - tokens_then)

    def forget(self) -> None:
        """See `Peer`."""
        self._llm.reset_prefix_cache()

    def compilations(self) -> int:
        """See `Peer`; compiled before the first request, where at all."""
        return 0


def _params(new: int) -> vllm.SamplingParams:
    return vllm.SamplingParams(temperature=0, max_tokens=new, ignore_eos=True, detokenize=False)


def load(model: str, dtype: str, threads: int, options: dict[str, Any]) -> VllmPeer:
    """Return the engine of a Hugging Face folder; its threads are bound above, one a core."""
    settings = DEFAULTS | options
    llm = vllm.LLM(
        model=model,
        dtype=dtype,
        skip_tokenizer_init=True,
        max_model_len=2048,
        seed=0,
        **settings,
    )
    about = {"vllm": vllm.__version__, "torch": torch.__version__}
    return VllmPeer(llm, about | {k: str(v) for k, v in settings.items()})
