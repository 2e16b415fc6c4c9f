"""Golden results: what must not change while the code does. Compare, or renew and show the difference.

    python tests/golden/golden.py [PATTERN]            compare, and show what differs
    python tests/golden/golden.py --renew [PATTERN]    the same, and store today's results

``layer1`` never changes: exact frontiers and plans, clock requests by instruction, losses, points of
recorded windows, the clock after a process has died. ``layer2`` holds whole jobs and the outside (commands,
block keys, damaged files); a commit that renews a file there states what it removes or changes.

``layer1`` was stored on a processor with AVX-512. Without it numpy and MKL add in another order, and the last
bits of some cases differ: ``layer1/*.avx2.json`` holds those.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DATA = Path(os.environ.get("PERSEUS_SHARED_DATA", ROOT.parent / "shared" / "data"))

VARIANT = "" if "avx512f" in Path("/proc/cpuinfo").read_text() else ".avx2"

Record = Callable[[Path], Any]
"""Produces a JSON value, with a folder for its files."""


def cases() -> dict[str, Record]:
    """All golden cases by name: ``LAYER/FILE/CASE``."""
    import guard_cases
    import job_cases
    import plan_cases
    import table_cases
    import whole_job_cases
    import window_cases

    files: dict[str, Mapping[str, Record]] = {
        "layer1/plans": plan_cases.cases(DATA),
        "layer1/jobs": {name: partial(job_cases.record, job) for name, job in job_cases.CASES.items()},
        "layer1/windows": window_cases.CASES,
        "layer1/guard": guard_cases.CASES,
        "layer2/whole_jobs": whole_job_cases.CASES,
        "layer2/tables": table_cases.CASES,
    }
    return {f"{file}/{name}": record for file, own in files.items() for name, record in own.items()}


def stored(name: str) -> Any:  # noqa: ANN401
    """Return what is stored for a case on a processor like this one; None where nothing is."""
    layer, file, case = name.split("/", 2)
    found = {}
    for path in (HERE / layer / f"{file}.json", HERE / layer / f"{file}{VARIANT}.json"):
        found |= json.loads(path.read_text()) if path.exists() else {}
    return found.get(case)


def differences(stored: Any, now: Any, *, tolerance: float = 0.0, where: str = "") -> Iterator[str]:  # noqa: ANN401
    """List where two results differ; numbers may differ by a share of their size."""
    if isinstance(stored, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*stored, *now]):
            if key not in now or key not in stored:
                yield f"{where}{key}: {'gone' if key in stored else 'new'}"
            else:
                yield from differences(stored[key], now[key], tolerance=tolerance, where=f"{where}{key}.")
    elif isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now):
        for index, (one, other) in enumerate(zip(stored, now, strict=True)):
            yield from differences(one, other, tolerance=tolerance, where=f"{where}{index}.")
    elif isinstance(stored, float) and isinstance(now, float) and tolerance:
        if not math.isclose(stored, now, rel_tol=tolerance, abs_tol=tolerance):
            yield f"{where[:-1]}: {stored!r} -> {now!r}"
    elif stored != now:
        yield f"{where[:-1]}: {_short(stored)} -> {_short(now)}"


TOLERANCE = {"layer1/windows": 1e-6, "layer2/whole_jobs": 1e-6}


def tolerance_of(name: str) -> float:
    """Return by what share numbers of a case may differ."""
    return TOLERANCE.get("/".join(name.split("/")[:2]), 0.0)


def _short(value: Any) -> str:  # noqa: ANN401
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


def _store(results: dict[str, Any]) -> None:
    for name, value in results.items():
        layer, file, case = name.split("/", 2)
        path = HERE / layer / f"{file}{VARIANT if layer == 'layer1' else ''}.json"
        path.parent.mkdir(exist_ok=True)
        content = json.loads(path.read_text()) if path.exists() else {}
        content[case] = value
        rows = ",\n".join(f" {json.dumps(key)}: {json.dumps(content[key])}" for key in sorted(content))
        path.write_text(f"{{\n{rows}\n}}\n")


def main() -> int:
    """Compare the cases that match a pattern; 1 where any differs and is not renewed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pattern", nargs="?", default="*")
    parser.add_argument("--renew", action="store_true", help="store today's results")
    options = parser.parse_args()
    results, different = {}, 0
    for name, record in cases().items():
        if not fnmatch(name, f"*{options.pattern}*"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            now = json.loads(json.dumps(record(Path(folder))))
        found = list(differences(stored(name), now, tolerance=tolerance_of(name)))
        different += bool(found)
        print(f"{name}: {'identical' if not found else f'{len(found)} differences'}", flush=True)
        for line in found[:20]:
            print(f"    {line}")
        if found and options.renew:
            results[name] = now
    _store(results)
    return 0 if options.renew or not different else 1


if __name__ == "__main__":
    sys.path[:0] = [
        str(HERE),
        *(str(ROOT / "tests" / name) for name in ("support", "fake_nvml", "e2e/guard")),
        str(ROOT / "scripts/demo_job"),
    ]
    raise SystemExit(main())
