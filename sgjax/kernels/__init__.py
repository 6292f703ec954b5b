"""DEVICE. Paged attention: one reference in jnp, one module per backend."""
