"""Choose the attention backend by name, once, at build time. Imports kernels and errors."""

from sgjax.errors import UnsupportedBackend
from sgjax.kernels import native
from sgjax.kernels.base import Attention
from sgjax.kernels.cpu import CpuAttention
from sgjax.kernels.cpu_native import cpu_native_attention
from sgjax.kernels.pallas_gpu import PallasGpuAttention
from sgjax.kernels.pallas_tpu import PallasTpuAttention
from sgjax.kernels.reference import ReferenceAttention

PLATFORMS = {
    "cpu": "cpu",
    "cpu_native": "cpu",
    "pallas_gpu": "gpu",
    "pallas_tpu": "tpu",
}
"""Where each backend runs; the reference runs anywhere."""
NAMES = ("auto", "reference", *PLATFORMS)


def select_attention(name: str, platform: str, page_size: int) -> Attention:
    """Return the attention of that name.

    Args:
        name: "auto" takes the platform's own, on a CPU "cpu_native" where a C++ compiler is; else a
            backend's name.
        platform: "cpu", "gpu" or "tpu": where the step will run.
        page_size: S, tokens a page.

    Raises:
        UnsupportedBackend: the name is unknown, or its backend does not run on this platform, with
            pages of this size, or without a compiler.
    """
    if name not in NAMES:
        raise UnsupportedBackend(
            f"attention={name!r} is not known; allowed: {', '.join(NAMES)}; use attention='auto'"
        )
    if name == "auto":
        name = _own(platform)
    if name in PLATFORMS and PLATFORMS[name] != platform:
        raise UnsupportedBackend(
            f"attention={name!r} needs platform {PLATFORMS[name]!r}, got {platform!r}; use "
            "attention='auto'"
        )
    match name:
        case "cpu":
            return CpuAttention(page_size)
        case "cpu_native":
            return cpu_native_attention(page_size)
        case "pallas_gpu":
            return PallasGpuAttention(page_size)
        case "pallas_tpu":
            return PallasTpuAttention(page_size)
        case _:
            return ReferenceAttention(page_size)


def _own(platform: str) -> str:
    """Return what "auto" takes on a platform."""
    if platform == "cpu":
        return "cpu" if native.find_compiler() is None else "cpu_native"
    return f"pallas_{platform}"
