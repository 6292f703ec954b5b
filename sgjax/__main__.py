"""`python -m sgjax`: the `sgjax` command of this very Python. Imports cli."""

from sgjax.cli import main

if __name__ == "__main__":
    main()
