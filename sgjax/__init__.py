"""sgjax: SGLang's language and runtime in JAX."""
