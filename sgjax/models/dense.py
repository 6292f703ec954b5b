"""Choose by name, once, at build time, what does a layer's products. Imports models and errors."""

from sgjax.errors import UnsupportedBackend
from sgjax.models.config import ModelConfig
from sgjax.models.int8 import PACK
from sgjax.models.layer import Dense, XlaDense
from sgjax.models.layer_native import native_dense

NAMES = ("auto", "xla", "native")


def select_dense(name: str, attention: str, config: ModelConfig, devices: int) -> Dense:
    """Return the products' backend of that name.

    Args:
        name: "auto" takes "native" beside the attention of that kind where the model allows it,
            else "xla".
        attention: the backend of attention, as it was chosen.
        config: the model.
        devices: that share every layer.

    Raises:
        UnsupportedBackend: the name is unknown, or its backend does not do this model here.
    """
    if name not in NAMES:
        raise UnsupportedBackend(
            f"linear={name!r} is not known; allowed: {', '.join(NAMES)}; use linear='auto'"
        )
    problem = None
    if attention != "cpu_native":
        problem = f"it goes with attention='cpu_native', got {attention!r}"
    elif devices > 1:
        problem = f"it is for one device, got mesh: tensor={devices}"
    elif config.head_dim % PACK:
        problem = f"it takes whole packs of {PACK} rows a head, got head_dim={config.head_dim}"
    elif config.num_experts:
        problem = "it does not do mixtures of experts"
    if name == "native" and problem:
        raise UnsupportedBackend(f"linear='native' is not possible: {problem}; use linear='xla'")
    return native_dense() if name != "xla" and problem is None else XlaDense()
