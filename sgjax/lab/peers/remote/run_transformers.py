"""transformers `generate`, in batches; it keeps no prefixes between calls."""

import time
from typing import Any

import torch
import transformers
from remote.base import Decoded, Outputs, Prompts
from transformers import AutoModelForCausalLM, DynamicCache, GenerationConfig

BATCH = 16
"""Prompts a call of `generate` in workloads of many: larger ones are no faster on CPU."""


class TransformersPeer:
    """A causal model with dynamic cache and its default attention."""

    def __init__(self, model: Any, about: dict[str, str]) -> None:
        self._model = model
        self._about = about
        self._kept: tuple[Prompts, DynamicCache] | None = None

    def about(self) -> dict[str, str]:
        """See `Peer`."""
        return self._about

    def generate(self, prompts: Prompts, new: int) -> Outputs:
        """See `Peer`; shorter prompts are padded on the left."""
        outputs: Outputs = []
        for at in range(0, len(prompts), BATCH):
            group = prompts[at : at + BATCH]
            width = max(len(p) for p in group)
            ids = torch.tensor([[0] * (width - len(p)) + p for p in group])
            mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in group])
            outputs += self._call(ids, new, attention_mask=mask)
        return outputs

    def decode(self, prompts: Prompts, new: int) -> Decoded:
        """See `Peer`; the K/V of the last call's prompts are kept."""
        ids = torch.tensor(prompts)
        if self._kept is None or self._kept[0] != prompts:
            cache = DynamicCache(config=self._model.config)
            self._call(ids, 1, past_key_values=cache)
            self._kept = (prompts, cache)
        cache = self._kept[1]
        cache.crop(ids.shape[1] - 1 - cache.get_seq_length())
        clock = _Clock()
        outputs = self._call(ids, new, past_key_values=cache, logits_processor=[clock])
        return Decoded(outputs, clock.times[-1] - clock.times[0], len(prompts) * (new - 1))

    def forget(self) -> None:
        """See `Peer`."""
        self._kept = None

    def compilations(self) -> int:
        """See `Peer`; nothing is compiled."""
        return 0

    def _call(self, ids: torch.Tensor, new: int, **arguments: Any) -> Outputs:
        config = GenerationConfig(do_sample=False, max_new_tokens=new, pad_token_id=0)
        arguments.setdefault("attention_mask", torch.ones_like(ids))
        with torch.inference_mode():
            out = self._model.generate(ids, generation_config=config, **arguments)
        outputs: Outputs = out[:, ids.shape[1] :].tolist()
        assert all(len(o) == new for o in outputs), "an end token ended a sequence"
        return outputs


class _Clock(transformers.LogitsProcessor):
    """Note when each step's logits are there."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.times.append(time.perf_counter())
        return scores


def load(model: str, dtype: str, threads: int, options: dict[str, Any]) -> TransformersPeer:
    """Return the model of a Hugging Face folder."""
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype), **options)
    # Nothing but the call's own settings may end a sequence.
    loaded.generation_config = GenerationConfig()
    about = {"transformers": transformers.__version__, "torch": torch.__version__}
    about |= {"attention": loaded.config._attn_implementation, "batch": str(BATCH)}
    return TransformersPeer(loaded.eval(), about | {k: str(v) for k, v in options.items()})
