"""Times and energies measured inside training, and the files that hold them.

``profile.estimate`` is imported by those who measure: it brings scipy.
"""

from perseus_ds.profile.curves import smooth
from perseus_ds.profile.files import read_profile, write_profile
from perseus_ds.profile.records import CounterTrace, Interval, Point, Profile, Window

__all__ = ["CounterTrace", "Interval", "Point", "Profile", "Window"]
__all__ += ["read_profile", "smooth", "write_profile"]
