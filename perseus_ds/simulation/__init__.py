"""Plans played in virtual time: a data-parallel cluster with noise and stragglers."""

from perseus_ds.simulation.cluster import Cluster, Played, Trouble
from perseus_ds.simulation.pipeline import Pipeline
from perseus_ds.simulation.textbook_gpu import textbook_profile

__all__ = ["Cluster", "Pipeline", "Played", "Trouble", "textbook_profile"]
