"""The figures of experiments: what can be asked for, and how each kind is drawn."""
