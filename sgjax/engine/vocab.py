"""How the vocabulary lies on the devices: whole, or a run of ids on each.

DEVICE. Imports jax. Sampling is written for one device's part of the logits and asks `Vocab` for
what the others hold; of f32[B, V] logits only maxima, sums of blocks and chosen values travel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, PartitionSpec


@dataclass(frozen=True)
class Vocab:
    """Ids split evenly over a mesh axis, in order; or, without a mesh, on one device.

    Attributes:
        mesh: the devices, or their description where none are here (sgjax.aot).
        axis: the mesh axis that ids are split over.
    """

    mesh: Mesh | AbstractMesh | None = None
    axis: str = ""

    def over_devices(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return f(logits f32[R, V], *others), run by each device on its part of the logits.

        Its results must not depend on the device. The other methods are for use inside `f`.
        """
        if self.mesh is None:
            return f
        split = PartitionSpec(None, self.axis)  # type: ignore[no-untyped-call]
        whole = PartitionSpec()  # type: ignore[no-untyped-call]

        def run(logits: jax.Array, *others: Any) -> Any:
            specs = (split, *(whole for _ in others))
            return jax.shard_map(
                f, mesh=self.mesh, in_specs=specs, out_specs=whole, check_vma=False
            )(logits, *others)

        return run

    @property
    def devices(self) -> int:
        """Return how many hold a part."""
        return 1 if self.mesh is None else int(self.mesh.shape[self.axis])

    def first_id(self, logits: jax.Array) -> jax.Array:
        """Return i32[], the id of the first column of a device's logits f32[R, V / devices]."""
        if self.mesh is None:
            return jnp.zeros((), jnp.int32)
        return jax.lax.axis_index(self.axis).astype(jnp.int32) * logits.shape[1]

    def joined(self, x: jax.Array) -> jax.Array:
        """Return [R, N], what the devices hold of it, [R, N / devices] each."""
        if self.mesh is None:
            return x
        joined: jax.Array = jax.lax.all_gather(x, self.axis, axis=1, tiled=True)
        return joined

    def total(self, x: jax.Array) -> jax.Array:
        """Return the sum over devices."""
        if self.mesh is None:
            return x
        total: jax.Array = jax.lax.psum(x, self.axis)  # type: ignore[no-untyped-call]
        return total

    def largest(self, x: jax.Array) -> jax.Array:
        """Return the maximum over devices."""
        if self.mesh is None:
            return x
        largest: jax.Array = jax.lax.pmax(x, self.axis)  # type: ignore[no-untyped-call]
        return largest

    def at(self, logits: jax.Array, ids: jax.Array) -> jax.Array:
        """Return f[R, Q], the elements of f[R, V / devices] at ids i32[R, Q], wherever they are."""
        if self.mesh is None:
            return jnp.take_along_axis(logits, ids, axis=1)
        local, here = self.local(logits, ids)
        found = jnp.take_along_axis(logits, local, axis=1)
        return self.total(jnp.where(here, found, 0))

    def local(self, logits: jax.Array, ids: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the columns of ids i32[R, Q], and which of them this device has; others are 0."""
        columns = ids - self.first_id(logits)
        here = (columns >= 0) & (columns < logits.shape[1])
        return jnp.where(here, columns, 0), here


WHOLE = Vocab()
