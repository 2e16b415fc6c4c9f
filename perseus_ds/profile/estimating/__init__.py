"""From a window of measurements to estimates of each computation."""
