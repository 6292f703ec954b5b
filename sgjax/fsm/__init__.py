"""HOST. Regexes and JSON schemas to byte automata, token masks, forced text; no jax."""
