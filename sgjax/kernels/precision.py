"""What float32 means in a product. Imports jax.

By default GPUs round float32 operands to TF32 and TPUs to bfloat16, which an engine that was asked
for float32 would not be told; so every product says what it wants. CPUs compute as they are told.
"""

import jax
import jax.numpy as jnp


def precision_of(dtype: jnp.dtype) -> jax.lax.Precision | None:
    """Return the precision to ask of a product of operands of that dtype: float32 is exact."""
    return jax.lax.Precision.HIGHEST if dtype == jnp.float32 else None
