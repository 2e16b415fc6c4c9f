"""The claim on one GPU: ownership, what stood before, the journal of it, and the way back."""
