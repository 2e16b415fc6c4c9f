"""What PyTorch calls at the end of ``import torch``."""

def arm() -> None:
    """Do nothing yet."""
