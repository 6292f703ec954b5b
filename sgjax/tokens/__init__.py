"""HOST. Tokenizers, incremental detokenising, stop test and chat templates; no jax, no torch."""
