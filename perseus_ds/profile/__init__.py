"""Times and energies measured inside training, and the files that hold them.

``profile.estimate`` is imported by those who measure: it brings scipy.
"""

from perseus_ds.profile.curves import sampled_ratios, smooth, time_factor
from perseus_ds.profile.files import (
    profile_csv,
    profile_json,
    read_csv,
    read_profile,
    write_csv,
    write_profile,
)
from perseus_ds.profile.loads import LoadFit, LoadSums, differ, fit_of
from perseus_ds.profile.records import (
    Computation,
    CounterTrace,
    CurveErrors,
    Interval,
    Point,
    Profile,
    Window,
)

__all__ = [
    "Computation",
    "CounterTrace",
    "CurveErrors",
    "Interval",
    "LoadFit",
    "LoadSums",
    "Point",
    "Profile",
    "Window",
    "differ",
    "fit_of",
    "profile_csv",
    "profile_json",
    "read_csv",
    "read_profile",
    "sampled_ratios",
    "smooth",
    "time_factor",
    "write_csv",
    "write_profile",
]
