"""The parts of benchmarks/peers.py: what is asked, who answers, and what is printed.

`worker`, `base` and the `run_*` modules also run in the peers' own Pythons, so they import the
standard library, numpy and their engine, nothing else.
"""
