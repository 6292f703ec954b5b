"""The language: programs of gen, select, fork and join over any backend.

Outside `backends` it imports types, errors, typed and the Backend protocol only; no jax anywhere.
"""
