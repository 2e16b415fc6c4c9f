"""Commands about a training job: start it, inform it, report on it."""
