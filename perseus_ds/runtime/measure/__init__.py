"""Marks, energy, sweeps and accounts: what a job is measured by."""
