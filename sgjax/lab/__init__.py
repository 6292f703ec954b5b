"""Experiments: typed YAML in; JSON lines, figure and report out. Nothing imports this package."""
