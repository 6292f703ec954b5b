"""Choose the attention backend by name, once, at build time. Imports kernels and errors."""

from sgjax.errors import UnsupportedBackend
from sgjax.kernels.base import Attention
from sgjax.kernels.cpu import CpuAttention
from sgjax.kernels.cpu_native import cpu_native_attention
from sgjax.kernels.reference import ReferenceAttention

NAMES = ("auto", "reference", "cpu", "cpu_native")


def select_attention(name: str, platform: str, page_size: int) -> Attention:
    """Return the attention of that name.

    Args:
        name: "auto" takes the platform's own; else a backend's name.
        platform: "cpu", "gpu" or "tpu": where the step will run.
        page_size: S, tokens a page.

    Raises:
        UnsupportedBackend: the name is unknown, or its backend does not run on this platform.
    """
    if name not in NAMES:
        raise UnsupportedBackend(
            f"attention={name!r} is not known; allowed: {', '.join(NAMES)}; use attention='auto'"
        )
    if name == "reference":
        return ReferenceAttention(page_size)
    if name in ("cpu", "cpu_native") and platform != "cpu":
        raise UnsupportedBackend(
            f"attention={name!r} needs platform 'cpu', got {platform!r}; use attention='reference'"
        )
    if name == "cpu_native":
        return cpu_native_attention(page_size)
    if platform == "cpu":
        return CpuAttention(page_size)
    raise UnsupportedBackend(
        f"attention='auto' has no backend for platform {platform!r} yet; allowed there: "
        "attention='reference' (slow)"
    )
