"""GPT-3 175B on eight stages of simulated A100s: the published profile's shape, for who does not have it.

``python -m perseus_ds.simulation.gpt3 PROFILE.csv`` writes it in the form of Zeus.
The published one is ``sosp24_data/emulation/stage_profile/gpt3-175b+a100_sxm_bf16.csv`` in the branch
``kronos`` of github.com/ml-energy/zeus (Apache-2.0); it is not copied here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from perseus_ds.device.simulated.models import model_named
from perseus_ds.device.simulated.physics import Work, duration_s, energy_j
from perseus_ds.profile import Point, Profile
from perseus_ds.profile.files import write_csv
from perseus_ds.schedule import Kind

STAGES = 8
BLOCKING_POWER_W = 83.64
"""Power of one GPU that waits. Source: Perseus artifact (ml-energy/zeus, branch kronos)."""

_GPU = model_named("a100-sxm4-80gb")
_LOWEST_MHZ = 855
_LAST_STAGE_IS_HEAVIER = 1.077
_WORK = {Kind.FORWARD: Work(0.049, 0.065, 1.0), Kind.BACKWARD: Work(0.091, 0.12, 1.0)}


def gpt3_profile() -> Profile:
    """Return what the simulated GPU takes for a forward and a backward of every stage, at 38 clocks.

    As published, stages 0 to 6 are alike, the last one has more to do, and 1410 MHz is not held under the
    power cap. Without noise: the same on every machine.
    """
    clocks_mhz = [clock for clock in _GPU.clocks_mhz if clock >= _LOWEST_MHZ]
    points = {
        (stage, kind): tuple(
            Point(mhz, duration_s(_GPU, mhz, own), energy_j(_GPU, mhz, own)) for mhz in clocks_mhz
        )
        for stage in range(STAGES)
        for kind, work in _WORK.items()
        for own in [work.times(_LAST_STAGE_IS_HEAVIER if stage == STAGES - 1 else 1.0)]
    }
    return Profile(points, blocking_power_w=BLOCKING_POWER_W)


def main(arguments: list[str]) -> int:
    """Write the profile; wrong usage is one line and exit code 2."""
    if len(arguments) != 1 or not arguments[0].lower().endswith(".csv"):
        sys.stderr.write("usage: python -m perseus_ds.simulation.gpt3 PROFILE.csv\n")
        return 2
    write_csv(gpt3_profile(), Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
