"""Plans played in virtual time by a whole job's clusters, and profiles for who has none."""

from perseus_ds.simulation.textbook_gpu import textbook_profile

__all__ = ["textbook_profile"]
