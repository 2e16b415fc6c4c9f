"""Decision which replica is slow, and how slowly the others can wait: alike on every rank."""
