"""How far measured kernels are from what the simulated GPU truly takes, entry by entry.

Run: ``python scripts/bench/joined/entries.py [--gpu rtx-3080-ti] [--seeds 0 1 2]``. About a CPU minute a
seed; everything is simulated.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from kernels_measured import BATCH, STAGES, measured

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))
from gpt3_xl import trace_of

from perseus_ds.device import SimulatedGpu, SimulatedSettings
from perseus_ds.device.clock_pair import DEFAULT_PAIR
from perseus_ds.device.simulated import VirtualTime, work_of_operator
from perseus_ds.kernels import KernelProfile


def departures(profile: KernelProfile, gpu: str) -> dict[str, float]:
    """Compare with the truth at the one temperature that fits all entries best.

    Units: per cent of an entry's energy; degrees C.
    """
    device = SimulatedGpu(SimulatedSettings(gpu=gpu), time=VirtualTime())
    model = device.model
    rows = []
    for kernel, points in profile.points.items():
        work = work_of_operator(model, kernel.name, kernel.shapes, kernel.dtype)
        for point in points:
            core_mhz = point.pair.clock_mhz or model.max_clock_mhz
            memory_mhz = point.pair.memory_mhz or model.memory_clocks_mhz[0]
            time_s, energy_j = device.truth.kernel_cost(work, core_mhz, memory_mhz)
            rows.append((point.time_s / time_s, point.energy_j, energy_j, time_s, point.pair == DEFAULT_PAIR))
    times, measured_j, true_j, true_s, default = np.array(rows).T
    leaking = model.leakage_w_per_k * true_s / true_j
    warmer_c = float(leaking @ (measured_j / true_j - 1.0) / (leaking @ leaking))
    off = measured_j / (true_j + warmer_c * model.leakage_w_per_k * true_s) - 1.0
    at_default = default > 0.0
    return {
        "temperature_c": model.reference_c + warmer_c,
        "energy_scatter_pct": 100.0 * float(np.sqrt((off**2).mean())),
        "default_pairs_off_pct": 100.0 * float(off[at_default].mean()),
        "other_pairs_off_pct": 100.0 * float(off[~at_default].mean()),
        "time_scatter_pct": 100.0 * float(times.std()),
    }


def main() -> int:
    """Print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", default="rtx-3080-ti")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    trace = trace_of(BATCH, STAGES)
    for seed in options.seeds:
        print(json.dumps({"seed": seed} | departures(measured(options.gpu, trace, seed), options.gpu)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
