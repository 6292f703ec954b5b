"""Backends: what the language's programs run on."""
