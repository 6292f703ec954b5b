"""The Attention protocol: what a backend's paged attention does. Imports jax and kernels.batch."""

from typing import Protocol

import jax

from sgjax.kernels.batch import Layout


class Attention(Protocol):
    """Write new K/V into the pool, then attend to it; a pure function with static settings."""

    @property
    def name(self) -> str:
        """Return the backend's name, as `attention=` takes it and results record it."""
        ...

    @property
    def writes_first(self) -> bool:
        """Return whether all writes of a step precede its reads.

        Only then may a sequence read pages that another sequence writes in the same step
        (`siblings: share_planned`).
        """
        ...

    @property
    def run_pays_from(self) -> int:
        """Return how many queries a shared run must have to save time; 0 is that none does.

        Runs that a layout has are attended to in any case.
        """
        ...

    def __call__(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        k_pool: jax.Array,
        v_pool: jax.Array,
        layout: Layout,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Attend causally from new tokens to their sequences.

        Args:
            q: f[T, H, D] rotated queries, not yet scaled.
            k: f[T, K, D] rotated keys of the new tokens.
            v: f[T, K, D] values of the new tokens.
            k_pool: [N * S, width] keys of one layer.
            v_pool: [N * S, width] values of one layer.
            layout: where the tokens belong.

        Returns:
            f[T, H, D] in the dtype of `q`, zero for padding, and the two pools with k and v
            written to the layout's out_slots.
        """
        ...
