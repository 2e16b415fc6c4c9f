"""Entry of the guard process: ``python -m perseus_ds.device.guard FILENO PARENT``."""

import sys

from perseus_ds.device.guard.serving.child import guard

if __name__ == "__main__":
    sys.exit(guard(int(sys.argv[1]), int(sys.argv[2])))
