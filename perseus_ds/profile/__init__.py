"""What was measured inside training, and the files that hold it.

``profile.estimate`` is imported by those who measure: it brings scipy.
"""

from perseus_ds.profile.curves.drawing import drawn_shares, time_factor
from perseus_ds.profile.curves.smoothing import smoothed
from perseus_ds.profile.estimating.window import CounterTrace, Interval, Window
from perseus_ds.profile.loads.load_fit import LoadFit, LoadSums, fit_of
from perseus_ds.profile.loads.sizes import differ
from perseus_ds.profile.record import Computation, CurveErrors, Point, Profile
from perseus_ds.profile.store import profile_json, read_profile, write_profile
from perseus_ds.profile.sweep import Sweep, candidate_clocks
from perseus_ds.profile.zeus_csv import profile_csv, read_csv, write_csv

__all__ = [
    "Computation",
    "CounterTrace",
    "CurveErrors",
    "Interval",
    "LoadFit",
    "LoadSums",
    "Point",
    "Profile",
    "Sweep",
    "Window",
    "candidate_clocks",
    "differ",
    "drawn_shares",
    "fit_of",
    "profile_csv",
    "profile_json",
    "read_csv",
    "read_profile",
    "smoothed",
    "time_factor",
    "write_csv",
    "write_profile",
]
