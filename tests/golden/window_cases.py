"""Points of recorded windows (intervals, counter steps, waits, temperature, loads), curves of a profile.

The inputs stand in ``windows.json``: they were recorded once on a simulated GPU and are data from then on.
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from perseus_ds.profile import CounterTrace, Interval, Point, Profile, Window, smooth
from perseus_ds.profile.estimate import estimate
from perseus_ds.schedule import Instruction, Kind, Load

INPUTS = Path(__file__).with_name("windows.json")


def _window(content: Mapping[str, Any]) -> Window:
    intervals = tuple(
        Interval(
            Instruction.parse(word), start_s, end_s, load=None if load is None else Load(*load), waits=waits
        )
        for word, start_s, end_s, load, waits in content["intervals"]
    )
    return Window(
        content["clock_mhz"],
        content["start_s"],
        content["end_s"],
        intervals,
        CounterTrace(content["time_s"], content["energy_j"]),
        achieved_mhz=content["clock_mhz"],
        temperature_c=content["temperature_c"],
        loads={} if content["load"] is None else {0: Load(*content["load"])},
    )


def _points(name: str, _: Path) -> dict[str, Any]:
    found = estimate(_window(json.loads(INPUTS.read_text())[name]))
    return {
        "blocking_power_w": found.blocking_power_w,
        "points": {
            f"{stage}{kind.value}": [point.time_s, point.energy_j, point.time_se_s, point.energy_se_j]
            for (stage, kind), point in sorted(found.points.items(), key=str)
        },
    }


def _curves(_: Path) -> dict[str, Any]:
    """The points that plans believe of five measured ones, off by up to a percent."""
    off = (0.0, 0.006, -0.008, 0.004, -0.002)
    points = {
        (stage, kind): tuple(
            Point(
                mhz,
                (1 - error) * base_s * (0.1 + 0.9 * 1410 / mhz),
                (1 + error) * base_s * (0.1 + 0.9 * 1410 / mhz) * (95 + 250 * (mhz / 1410) ** 2.7),
                time_se_s=0.002 * base_s,
                energy_se_j=0.9 * base_s,
            )
            for mhz, error in zip((1410, 1245, 1095, 855, 705), off, strict=True)
        )
        for stage in range(2)
        for kind, base_s in ((Kind.FORWARD, 0.3 + 0.02 * stage), (Kind.BACKWARD, 0.6 - 0.03 * stage))
    }
    curves = smooth(Profile(points, blocking_power_w=70.0))
    return {
        f"{stage}{kind.value}": [[point.clock_mhz, point.time_s, point.energy_j] for point in own]
        for (stage, kind), own in sorted(curves.points.items(), key=str)
    }


CASES = {**{name: partial(_points, name) for name in json.loads(INPUTS.read_text())}, "curves": _curves}
