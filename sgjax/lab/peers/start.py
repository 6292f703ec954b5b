"""Start a peer for a variant: its environment, its form of the weights, its process.

Imports models, tokens and its neighbours.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sgjax.errors import ConfigError
from sgjax.lab.peers import checkpoints
from sgjax.lab.peers.engine import PeerEngine
from sgjax.lab.peers.environment import environment
from sgjax.lab.peers.process import PeerProcess
from sgjax.lab.peers.spec import PEERS, PeerSpec
from sgjax.models.gguf_file import GgufFile
from sgjax.models.pull import pull
from sgjax.tokens.gguf import tokenizer_from_gguf

Say = Callable[[str], None]
FORMS = {"hf": checkpoints.hf_folder, "gguf": checkpoints.gguf_file}


def start_peer(spec: PeerSpec, model: str, dtype: str, cache_dir: Path, say: Say) -> PeerEngine:
    """Start a peer on a preset's weights.

    Args:
        spec: which peer, and in which Python.
        model: a preset that can be pulled; all peers' weights are written from its GGUF file.
        dtype: "bfloat16" or "float32".
        cache_dir: where checkpoints, environments and logs are kept.
        say: told what takes long.

    Raises:
        ConfigError: the model is no such preset.
        UnsupportedBackend: the peer cannot be installed or started; the message says why.
    """
    source = pull(model, cache_dir, say)
    if source.suffix != ".gguf":
        raise ConfigError(f"model={model!r} is no GGUF file, which peers' weights are made of")
    peer, folder = PEERS[spec.name], cache_dir / "peers"
    python = spec.python or str(environment(peer.requires, folder, say))
    options = dict(peer.options)
    if peer.tokenizer:
        options["tokenizer"] = str(checkpoints.tokenizer_folder(source, folder))
    settings: dict[str, Any] = {
        "engine": peer.module,
        "model": str(FORMS[peer.reads](source, dtype, folder)),
        "dtype": dtype,
        "threads": len(os.sched_getaffinity(0)),
        "options": options,
    }
    tokenizer = tokenizer_from_gguf(GgufFile(source).metadata)
    # The process has the log open by itself.
    with (folder / f"{spec.name}.log").open("w", encoding="utf-8") as log:
        process = PeerProcess(python, settings, log)
    return PeerEngine(process, spec, tokenizer, model, dtype)
