"""Commands about clocks of single kernels."""
