"""Clocks: which plan is active, which clock is asked for, and when."""
