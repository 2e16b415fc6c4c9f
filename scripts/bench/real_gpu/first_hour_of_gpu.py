"""Load the GPU that torch takes for some four minutes and check, by reads alone, what measuring relies on.

python scripts/bench/real_gpu/first_hour_of_gpu.py [-o FILE]
"""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path

from first_hour import first_hour, torch_bench

from perseus_ds.errors import DeviceError


def main() -> None:
    """Check, write the report and its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("first-hour.txt"))
    options = parser.parse_args()
    try:
        bench = torch_bench()
    except DeviceError as error:
        sys.exit(f"{error.message} ({error.hint})" if error.hint else error.message)
    with bench.gpu as gpu:
        who = gpu.identify()
        machine = {"gpu": who.name, "driver": who.driver, "host": platform.platform()} | bench.versions()
        report = first_hour(bench, machine, progress=lambda line: print(line, file=sys.stderr))
    beside = report.write(options.output)
    print(f"{report.text}written: {options.output} and {beside}")


if __name__ == "__main__":
    main()
