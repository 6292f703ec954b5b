"""HOST. PagePool, RadixTree, eviction orders and the ablated caches; no jax."""
