"""From the first training iteration to a running session."""
