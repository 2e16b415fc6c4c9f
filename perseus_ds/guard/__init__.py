"""The guard: the one process that sets a GPU's clock, and that restores it whoever dies."""
