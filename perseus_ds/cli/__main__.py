"""``python -m perseus_ds.cli``: the command, where its script is not on the PATH."""

import sys

from perseus_ds.cli import main

sys.exit(main())
