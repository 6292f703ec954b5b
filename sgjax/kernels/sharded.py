"""Any attention, split over the devices of a mesh by heads. Imports jax and kernels."""

from dataclasses import dataclass

import jax
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from sgjax.kernels.base import Attention
from sgjax.kernels.batch import Layout


@dataclass(frozen=True)
class ShardedAttention:
    """Every device attends with its own heads to its own part of the pool; nothing is exchanged.

    Attributes:
        inner: what each device does.
        mesh: the devices, or their description where none are here (sgjax.aot).
        axis: the mesh axis that heads are split over; their numbers are multiples of its size.
    """

    inner: Attention
    mesh: Mesh | AbstractMesh
    axis: str

    @property
    def name(self) -> str:
        """Return the backend's name."""
        return self.inner.name

    @property
    def writes_first(self) -> bool:
        """See `Attention`."""
        return self.inner.writes_first

    @property
    def run_pays_from(self) -> int:
        """See `Attention`."""
        return self.inner.run_pays_from

    def __call__(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        k_pool: jax.Array,
        v_pool: jax.Array,
        layout: Layout,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """See `Attention`."""
        heads, pool, whole = _spec(None, self.axis, None), _spec(None, self.axis), _spec()
        return jax.shard_map(
            self.inner,
            mesh=self.mesh,
            in_specs=(heads, heads, heads, pool, pool, whole),
            out_specs=(heads, pool, pool),
            check_vma=False,  # kernels do not say which of their results vary over the mesh
        )(q, k, v, k_pool, v_pool, layout)


def _spec(*axes: str | None) -> PartitionSpec:
    return PartitionSpec(*axes)  # type: ignore[no-untyped-call]
