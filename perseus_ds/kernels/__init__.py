"""The kernel level: what an instruction is made of, and a pair of clocks for every kernel of it."""
