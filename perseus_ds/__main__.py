"""``python -m perseus_ds``: the program where no script is installed."""

import sys

from perseus_ds.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
