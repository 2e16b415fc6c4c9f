"""What was measured inside training, and the files that hold it."""

from perseus_ds.profile.record import Computation, Point, Profile
from perseus_ds.profile.store import read_profile, write_profile
from perseus_ds.profile.zeus_csv import read_csv, write_csv

__all__ = ["Computation", "Point", "Profile", "read_csv", "read_profile", "write_csv", "write_profile"]
