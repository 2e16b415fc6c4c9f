"""Whether plans, frontiers, savings and certificates are those of an earlier revision, to the last digit.

Run: ``python scripts/bench/unchanged/main.py [REVISION] [--only PATTERN] [--again] [--kept FOLDER]``
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import numpy as np
from cases import all_cases
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[3]
CASES = Path(__file__).with_name("cases.py")
REVISION = "0dec82b"
Arrays = Mapping[str, NDArray[np.generic]]


def main() -> int:
    """Solve all cases in both trees, print one line for each, and exit with 1 where any differs."""
    arguments = _arguments()
    data = Path(os.environ.get("PERSEUS_SHARED_DATA", ROOT.parent / "shared" / "data"))
    names = [name for name in all_cases(data) if fnmatch(name, f"*{arguments.only}*")]
    if not names:
        raise SystemExit(f"no case is called *{arguments.only}*")
    kept: Path = arguments.kept
    before = _before(kept, arguments.revision, data, names, again=arguments.again)
    with tempfile.TemporaryDirectory() as folder:
        now = _solved(ROOT, data, Path(folder) / "now.npz", names)
    rows = [Row.of(name, before, now) for name in names]
    for row in rows:
        print(row)
    different = [row for row in rows if row.different]
    before_s, now_s = (sum(row.cpu_s[side] for row in rows) for side in (0, 1))
    print(
        f"{len(rows) - len(different)} of {len(rows)} cases identical to {arguments.revision};"
        f" {before_s:.1f} CPU s then, {now_s:.1f} now"
        + ("" if arguments.again else " (then: as kept from its own run; --again measures both)")
    )
    return 1 if different else 0


class Row(NamedTuple):
    """One case: which of its arrays differ, what that does to the saving, and CPU seconds then and now."""

    name: str
    different: tuple[str, ...]
    worth: str
    cpu_s: tuple[float, float]

    @classmethod
    def of(cls, name: str, before: Arrays, now: Arrays) -> Row:
        """Compare bit for bit: shapes and values, so that -0.0 and 0.0 are alike and nan is nan."""
        keys = sorted({key for arrays in (before, now) for key in arrays if key.startswith(f"{name}|")})
        different = [key for key in keys if not key.endswith("|cpu_s") and not _same(before, now, key)]
        worth = _worth(name, before, now) if different else ""
        cpu_s = float(before[f"{name}|cpu_s"]), float(now[f"{name}|cpu_s"])
        return cls(name, tuple(key.split("|")[1] for key in different), worth, cpu_s)

    def __str__(self) -> str:
        said = f"DIFFERS in {' '.join(self.different)}{self.worth}" if self.different else "identical"
        return f"{self.name}: {said} ({self.cpu_s[0]:.2f} -> {self.cpu_s[1]:.2f} CPU s)"


def _same(before: Arrays, now: Arrays, key: str) -> bool:
    if key not in before or key not in now:
        return False
    floats = before[key].dtype.kind == now[key].dtype.kind == "f"
    return np.array_equal(before[key], now[key], equal_nan=floats)


def _worth(name: str, before: Arrays, now: Arrays) -> str:
    """Mean energy at the times of both, and the saving at the baseline's time: how much better or worse."""
    keys = [f"{name}|{part}" for part in ("time_s", "energy_j", "baseline")]
    if not all(key in arrays for arrays in (before, now) for key in keys):
        return ""
    both = []
    for arrays in (before, now):
        time_s, energy_j, (baseline_s, baseline_j) = (arrays[key].astype(float) for key in keys)
        wanted_s = np.append(np.linspace(before[keys[0]][0], before[keys[0]][-1], 200), baseline_s) * (
            1 + 1e-9
        )
        fits = np.maximum(np.searchsorted(time_s, wanted_s, side="right") - 1, 0)
        both.append(100.0 * (1.0 - energy_j[fits] / baseline_j))
    change = both[1] - both[0]
    return (
        f"; saving in points: mean {change[:-1].mean():+.6f}, least {change[:-1].min():+.6f},"
        f" most {change[:-1].max():+.6f}, at the baseline's time {change[-1]:+.6f}"
    )


def _before(kept: Path, revision: str, data: Path, names: list[str], *, again: bool) -> Arrays:
    """Results of the earlier revision: solved once, and kept for as long as the cases are these."""
    commit = subprocess.check_output(
        ["git", "rev-parse", f"{revision}^{{commit}}"], cwd=ROOT, text=True
    ).strip()
    cases = hashlib.sha256(CASES.read_bytes()).hexdigest()[:12]
    file, tree = kept / f"{commit[:12]}-{cases}.npz", kept / commit[:12]
    known = dict(np.load(file)) if file.exists() else {}
    wanted = [name for name in names if again or f"{name}|cpu_s" not in known]
    if wanted:
        if not tree.exists():
            _check_out(commit, tree)
        with tempfile.TemporaryDirectory(dir=kept) as folder:
            known |= _solved(tree, data, Path(folder) / "then.npz", wanted)
            np.savez(Path(folder) / "all.npz", **known)
            (Path(folder) / "all.npz").replace(file)
    return known


def _check_out(commit: str, tree: Path) -> None:
    """Put the package as it was into a folder of its own."""
    tree.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=tree.parent))
    archive = subprocess.Popen(["git", "archive", commit, "perseus_ds"], cwd=ROOT, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", partial], stdin=archive.stdout, check=True)
    if archive.wait():
        shutil.rmtree(partial)
        raise SystemExit(f"{commit} has no perseus_ds")
    partial.replace(tree)


def _solved(tree: Path, data: Path, found: Path, names: list[str]) -> dict[str, NDArray[np.generic]]:
    """Solve in a process that imports the package of ``tree``."""
    path = os.environ | {"PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, str(CASES), str(tree), str(data), str(found), *names], env=path, check=False
    )
    if done.returncode:
        raise SystemExit(f"the cases could not be solved in {tree}: see above")
    return dict(np.load(found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", nargs="?", default=REVISION, help=f"default: {REVISION}")
    parser.add_argument("--only", default="", help="names of cases, with * and ?")
    parser.add_argument("--again", action="store_true", help="solve the earlier revision's cases again too")
    parser.add_argument("--kept", type=Path, default=ROOT / ".cache" / "unchanged", help="earlier results")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
