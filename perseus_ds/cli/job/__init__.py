"""Commands about a training job: start it, tell it, report on it."""
