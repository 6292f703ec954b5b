"""Compiler mode: programs as graphs (paper appendix D)."""
