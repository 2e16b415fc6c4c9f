"""The exact frontier: a parametric flow from the least cost down to the least time."""
