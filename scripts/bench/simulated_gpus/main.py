"""The simulated GPUs beside what was measured on real ones.

Run: ``python scripts/bench/simulated_gpus/main.py``. Prints every measured point beside the model's, and what
each model assumes. Exit code 1 where a point is further off than BAR_PCT.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perseus_ds.device.simulated import MODELS, GpuModel, model_named, physics

MEASURED: Mapping[str, Mapping[str, Any]] = json.loads(Path(__file__).with_name("measured.json").read_text())
BAR_PCT = 5.0
_DENSEST = 1.0


def rows(model: GpuModel, measured: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    """What was measured, its value, and the model's: power in watts, then the clocks that a cap left."""
    for clock, watts in measured["power_w"].items():
        held_mhz = physics.held_clock_mhz(model, int(clock), _DENSEST, measured["cap_w"])
        yield f"{clock} MHz, W", watts, physics.power_w(model, held_mhz, _DENSEST)
    for clock, reached_mhz in measured.get("reached_mhz", {}).items():
        held_mhz = physics.held_clock_mhz(model, int(clock), _DENSEST, measured["cap_w"])
        yield f"{clock} MHz asked for, reached", reached_mhz, held_mhz


def off_pct(measured: float, modelled: float) -> float:
    """How far the model is from what was measured."""
    return 100.0 * (modelled / measured - 1.0)


def main() -> int:
    """Print the tables."""
    worst_pct = 0.0
    for key, measured in MEASURED.items():
        print(f"{key}: {measured['source']}")
        for what, seen, modelled in rows(model_named(key), measured):
            off = off_pct(seen, modelled)
            worst_pct = max(worst_pct, abs(off))
            print(f"  {what:32} measured {seen:7.1f}  model {modelled:7.1f}  {off:+5.1f} %")
    for key, model in MODELS.items():
        assumed = [field for field, source in model.sources.items() if "assumed" in source]
        print(f"{key} assumes, wholly or in part: {', '.join(assumed)}")
    print(f"furthest off: {worst_pct:.1f} % (bar {BAR_PCT:g} %)")
    return int(worst_pct > BAR_PCT)


if __name__ == "__main__":
    sys.exit(main())
