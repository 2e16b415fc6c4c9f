"""From relaxed durations to real options: beams, exchanges along chains, splices, what rounding gave back."""
