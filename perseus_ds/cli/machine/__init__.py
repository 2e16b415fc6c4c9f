"""Commands about this machine: its GPUs, its hook, its node service."""
