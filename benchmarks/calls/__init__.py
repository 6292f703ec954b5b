"""What calls of other systems cost their hosts: their own code on models that answer at once.

Each script runs in an environment of its own, with the system that it measures. What they print
stands in configs/baselines.
"""
