"""How slow each replica is, from noisy iterations: running medians, jumps, damping of flaps."""
