"""The parts of benchmarks/peers.py: what is asked, and what is printed."""
