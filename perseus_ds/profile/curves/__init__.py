"""Curves behind a profile: physics, regression, and the points drawn to them."""
