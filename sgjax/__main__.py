"""`python -m sgjax`: the `sgjax` command of this very Python. Imports cli."""

from sgjax.cli import main

main()
