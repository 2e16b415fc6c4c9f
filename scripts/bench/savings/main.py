"""What plans of forty profiles save, with this code or another checkout's, so that both can be compared.

python scripts/bench/savings/main.py now.json [--source CHECKOUT] [--before before.json]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROFILES = 40
PLACES = {5: (1.0, 0.89, 0.78, 0.6, 0.5), 8: (1.0, 0.93, 0.86, 0.79, 0.72, 0.65, 0.58, 0.5)}
ERROR = 0.003
TOP_MHZ = (1410, 1740, 1980)
PLAN = "import sys; from perseus_ds.cli.main import main; sys.exit(main(sys.argv[1:]))"
ROWS = ("no slowdown", "+1 %", "+5 %")


def profile(number: int) -> dict[str, object]:
    """Draw a job of times ``a + b / f`` and powers ``s + c f v(f)^2``, measured with errors of 0.3 %."""
    draw = random.Random(number)  # noqa: S311  # the same forty each time
    top, count = draw.choice(TOP_MHZ), (5, 8)[number % 2]
    points = []
    for stage in range(draw.choice((2, 4, 8))):
        weight = draw.uniform(0.9, 1.15)
        for kind, base_s in (("F", 0.05), ("B", 0.1)):
            bound, static_w, knee = draw.uniform(0.05, 0.3), draw.uniform(90, 140), draw.uniform(0.5, 0.75)
            for share in PLACES[count]:
                clock_mhz = 15 * round(share * top / 15)
                at = clock_mhz / top
                volts = max(1.0, 1.0 + (at - knee))
                time_s = weight * base_s * (bound + (1.0 - bound) / at) * (1.0 + draw.gauss(0.0, ERROR))
                power_w = (static_w + 190.0 * at * volts**2) * (1.0 + draw.gauss(0.0, ERROR))
                energy_j = power_w * time_s
                points.append(
                    {
                        "stage": stage,
                        "kind": kind,
                        "clock_mhz": clock_mhz,
                        "achieved_mhz": clock_mhz,
                        "time_s": time_s,
                        "energy_j": energy_j,
                        "samples": 40,
                        "event_reasons": 0,
                        "time_se_s": ERROR * time_s,
                        "energy_se_j": 1.4 * ERROR * energy_j,
                        "time_sd_s": None,
                    }
                )
    grid = [mhz for mhz in range(top, top // 2, -15) if all(mhz != one["clock_mhz"] for one in points)]
    return {
        "format": "perseus-profile",
        "version": 1,
        "fingerprint": {},
        "window_s": 5.0,
        "blocking_power_w": 75.0,
        "blocking_w": {},
        "fixed_s": [],
        "calibration": None,
        "size_variation": 0.0,
        "leakage": 0.0,
        "leakage_se": 0.0,
        "points": points,
        "grid_mhz": grid,
    }


def savings(number: int, folder: Path, source: Path) -> dict[str, float]:
    """Plan one job by the command line of a checkout; return the saving of every row (%)."""
    path, content = folder / f"{number}.json", profile(number)
    path.write_text(json.dumps(content))
    stages = 1 + max(point["stage"] for point in content["points"])  # type: ignore[attr-defined]
    words = ["plan", str(path), "--stages", str(stages), "--microbatches", str(4 + number % 9), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", PLAN, *words],
        env={**os.environ, "PYTHONPATH": str(source)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = {row["name"]: row["saving_pct"] for row in json.loads(done.stdout)["rows"]}
    return {name: rows[name] for name in ROWS if name in rows}


def main() -> None:
    """Write the savings, and print how they differ from those of before."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[3])
    parser.add_argument("--before", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = [savings(number, Path(folder), options.source.resolve()) for number in range(PROFILES)]
    options.results.write_text(json.dumps(found, indent=1) + "\n")
    for name in ROWS:
        line = f"{name}: {statistics.fmean(one[name] for one in found):.3f} %"
        if options.before is not None:
            pairs = zip(found, json.loads(options.before.read_text()), strict=True)
            more = [now[name] - before[name] for now, before in pairs]
            line += f", {statistics.fmean(more):+.4f} points, worst {min(more):+.4f}, best {max(more):+.4f}"
        print(line)


if __name__ == "__main__":
    main()
