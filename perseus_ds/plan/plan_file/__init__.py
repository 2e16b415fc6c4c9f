"""The plan file: how it is written, packed, sealed and bounded."""
