"""Stragglers inside a replica: ranks that meet in every layer, and which of them all others wait for."""

from perseus_ds.straggler.peers.lateness import PeerLateness, Ran
from perseus_ds.straggler.peers.slower_clocks import slower_clocks
from perseus_ds.straggler.peers.watch import Claims, PeerStraggler, PeerWatch

__all__ = ["Claims", "PeerLateness", "PeerStraggler", "PeerWatch", "Ran", "slower_clocks"]
