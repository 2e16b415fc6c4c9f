"""What the program's exit codes mean; scripts rely on them."""

DONE = 0
REFUSED = 1
USAGE = 2  # by argparse
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
