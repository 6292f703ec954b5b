"""What runs in the peers' own Pythons: a worker, and an adapter an engine.

These modules are started in this folder's parent and know each other as `remote`; they import the
standard library, numpy and their engine, nothing else (`run_sgjax`: sgjax).
"""
