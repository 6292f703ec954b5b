"""Write the goldens: what transformers computes in float32, and what SentencePiece encodes.

Run by `make goldens` as a module (python -m tests.golden.make_goldens) where torch, transformers,
gguf, sentencepiece and sgjax's host dependencies are installed.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from sgjax.models.gguf_file import GgufFile
from sgjax.models.pull import default_cache_dir, pull
from sgjax.tokens.gguf import tokenizer_from_gguf
from tests.golden import make_tokens, variations

FOLDER = Path(__file__).parent / "logits"


def tiny_logits(name: str) -> NDArray[np.float32]:
    """Return f32[n, V] logits of one variation."""
    data = dict(variations.CONFIGS[name])
    config = transformers.AutoConfig.for_model(data.pop("model_type"), **data)
    how = {"dtype": torch.float32, "attn_implementation": "eager"}
    model = transformers.AutoModelForCausalLM.from_config(config, **how).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            values = _parameter(name, key, tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(values))
        out = model(torch.from_numpy(variations.tokens(name))[None])
    return out.logits[0].numpy()


def _parameter(name: str, key: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return a weight; checkpoints of Mixtral name experts singly, transformers stacks them."""
    at, _, tail = key.partition(".mlp.")
    moe = f"{at}.block_sparse_moe."
    if not variations.CONFIGS[name].get("num_local_experts") or not tail:
        return variations.tensor(name, key, shape)
    if tail == "gate.weight":
        return variations.tensor(name, f"{moe}gate.weight", shape)

    def expert(x: int, *parts: str) -> NDArray[np.float32]:
        rows = (shape[1] // len(parts), shape[2])
        names = [f"{moe}experts.{x}.{part}.weight" for part in parts]
        return np.concatenate([variations.tensor(name, n, rows) for n in names])

    parts = ("w1", "w3") if tail == "experts.gate_up_proj" else ("w2",)
    return np.stack([expert(x, *parts) for x in range(shape[0])])


def smollm2() -> dict[str, NDArray[np.generic]]:
    """Return logits of the real SmolLM2, read from its GGUF file by transformers itself."""
    path = pull("smollm2-135m", default_cache_dir(), print)
    load = {"gguf_file": path.name, "dtype": torch.float32, "attn_implementation": "eager"}
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, **load).eval()
    text = (Path(__file__).parents[2] / "LICENSE").read_text()
    # Not transformers' tokenizer: its conversion from GGUF forgets that digits stand alone.
    tokenizer = tokenizer_from_gguf(GgufFile(path).metadata)
    ids = np.array(tokenizer.encode(text)[: variations.SMOLLM2_LENGTHS[-1]])
    arrays: dict[str, NDArray[np.generic]] = {"ids": ids.astype(np.int32)}
    projection = variations.projection(model.config.vocab_size)
    with torch.no_grad():
        for length in variations.SMOLLM2_LENGTHS:
            # Prompts end alike but begin at different places, so that none is a prefix of another.
            prompt = torch.from_numpy(ids[-length:])[None]
            logits = model(prompt).logits[0, variations.smollm2_positions(length)].numpy()
            order = np.argsort(-logits, axis=1)[:, :64].astype(np.int32)
            arrays[f"top_ids_{length}"] = order
            arrays[f"top_{length}"] = np.take_along_axis(logits, order, axis=1)
            arrays[f"every_16th_{length}"] = logits[:, ::16]
            arrays[f"projected_{length}"] = logits @ projection
    return arrays


def main() -> None:
    """Write everything, or the parts named on the command line."""
    parts = sys.argv[1:] or ["tokens", "tiny", "smollm2"]
    FOLDER.mkdir(exist_ok=True)
    if "tokens" in parts:
        make_tokens.main()
    if "tiny" in parts:
        tiny = {name: tiny_logits(name) for name in variations.CONFIGS}
        np.savez_compressed(FOLDER / "tiny.npz", **tiny)
    if "smollm2" in parts:
        np.savez_compressed(FOLDER / "smollm2.npz", **smollm2())


if __name__ == "__main__":
    main()
