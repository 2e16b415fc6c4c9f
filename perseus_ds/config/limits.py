"""How large a configuration may be."""

MOST_BYTES = 256 << 10
"""It is read by a parser in Python: more would take seconds."""
