"""What was measured inside training, and the files that hold it."""

from perseus_ds.profile.counter import CounterTrace
from perseus_ds.profile.estimate import Estimate, estimate
from perseus_ds.profile.record import Computation, Point, Profile
from perseus_ds.profile.store import read_profile, write_profile
from perseus_ds.profile.sweep import Sweep, candidate_clocks
from perseus_ds.profile.window import Interval, Window
from perseus_ds.profile.zeus_csv import read_csv, write_csv

__all__ = [
    "Computation",
    "CounterTrace",
    "Estimate",
    "Interval",
    "Point",
    "Profile",
    "Sweep",
    "Window",
    "candidate_clocks",
    "estimate",
    "read_csv",
    "read_profile",
    "write_csv",
    "write_profile",
]
