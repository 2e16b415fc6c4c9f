"""What each computation takes and draws at every clock that may be in force, from a profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from perseus_ds.profile import Computation, Profile
from perseus_ds.simulation.emulator.records import Floats, Ints, Tables


def tables_of(
    profile: Profile,
    rows: Sequence[Computation],
    *,
    waiting_w: Mapping[int, float] | float,
    clocks_mhz: Iterable[int] = (),
) -> Tables:
    """Lay the profile out on one grid of clocks: all that were measured, and ``clocks_mhz``.

    Between measured clocks time and power are interpolated; below the lowest one the work is taken to be
    bound by the clock (time with 1/f, power with f: a change that is late, a clock for waiting). Waiting
    power is a number, or given by clock, interpolated, flat beyond its ends.

    Raises:
        IncompleteProfileError: a computation was not measured.
    """
    waiting = waiting_w if isinstance(waiting_w, Mapping) else {}
    clocks = np.array(sorted({*profile.clocks_mhz, *clocks_mhz, *waiting}), dtype=np.int64)
    filled = [_row(profile, row, clocks) for row in rows]
    return Tables(
        clock_mhz=clocks,
        waiting_w=_waiting_w(waiting_w, clocks),
        time_s=np.array([time_s for time_s, _ in filled]),
        power_w=np.array([power_w for _, power_w in filled]),
    )


def _row(profile: Profile, row: Computation, clocks: Ints) -> tuple[Floats, Floats]:
    points = profile.of(*row)[::-1]
    measured = np.array([point.clock_mhz for point in points], dtype=np.float64)
    time_s = np.array([point.time_s for point in points])
    power_w = np.array([point.energy_j / point.time_s for point in points])
    share = np.minimum(1.0, clocks / measured[0])
    return np.interp(clocks, measured, time_s) / share, np.interp(clocks, measured, power_w) * share


def _waiting_w(waiting_w: Mapping[int, float] | float, clocks: Ints) -> Floats:
    if not isinstance(waiting_w, Mapping):
        return np.full(len(clocks), float(waiting_w))
    known = sorted(waiting_w.items())
    watts: Floats = np.interp(clocks, [clock for clock, _ in known], [power for _, power in known])
    return watts
