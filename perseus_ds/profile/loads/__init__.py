"""What iterations work on, and how durations depend on it."""
