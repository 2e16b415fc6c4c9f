"""Which replica is slow, and how slowly the others can wait: one decision, alike on every rank."""
