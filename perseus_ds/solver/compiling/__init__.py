"""Kernels as plain Python or as machine code: which of the two, and where the code is kept."""
