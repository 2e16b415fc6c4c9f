"""Plans run in virtual time by a whole job's clusters, and profiles for whoever has none."""

from perseus_ds.simulation.textbook_gpu import textbook_profile

__all__ = ["textbook_profile"]
