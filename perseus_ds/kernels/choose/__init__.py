"""Which pair of clocks every kernel, instruction or pass should have: exact, with a certified gap."""
