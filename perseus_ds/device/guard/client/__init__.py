"""In the trainer: a GPU whose clock is set by a message, and the guard that is started for it."""
