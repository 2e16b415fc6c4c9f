"""A GPU in software: a physical device whose truth is known, not a mock."""
