"""Compare jobs beside a slow GPU with default clocks: never slower, and the straggler named; see README.md.

Whole jobs of DeepSpeed and Megatron on CPUs, simulated GPUs in virtual time: a minute or two for each case.

python scripts/bench/straggler/slow_gpus.py [--cases "ZeRO*always*"] [--seed 0] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[3] / one) for one in ("tests/support", "scripts/demo_job"))

from replicas import PLANNED, all_cases, compare

COLUMNS = ("slower_pct", "counted_pct", "error_pct", "named_after", "unnamed", "accused")


def main() -> int:
    """Compare, print a line for each case as it ends, and state by the exit code whether all bars are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", default="*", help="pattern of names (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for the results, written anew after each case")
    options = parser.parse_args()
    chosen = [case for case in all_cases() if fnmatch(str(case), options.cases)]
    if not chosen:
        parser.error(f"no case is called {options.cases!r}; they are:\n" + "\n".join(map(str, all_cases())))
    print(f"{'case':<64}" + "".join(f"{column:>12}" for column in COLUMNS))
    rows = []
    for case in chosen:
        with tempfile.TemporaryDirectory() as folder:
            found = compare(case, Path(folder), seed=options.seed, iterations=PLANNED)
        met = found.is_met(case)
        values = [getattr(found, column) for column in COLUMNS]
        cells = [f"{value:+.3f}" if isinstance(value, float) else str(value) for value in values]
        print(
            f"{case!s:<64}" + "".join(f"{cell:>12}" for cell in cells) + "  NOT MET" * (not met), flush=True
        )
        rows.append({"case": str(case), **asdict(found), "met": met})
        if options.json:
            options.json.write_text(
                json.dumps({"simulated": True, "seed": options.seed, "cases": rows}, indent=1)
            )
    missed = sum(not row["met"] for row in rows)
    print(f"{len(rows) - missed} of {len(rows)} cases meet the bars")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
