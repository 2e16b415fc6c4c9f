"""Today's results are the stored ones; ``python tests/golden/golden.py --renew`` stores a difference."""

from __future__ import annotations

import json
from pathlib import Path

import golden
import pytest
from fake_nvml import missing_compiler
from whole_job_cases import SLOW

CASES = golden.cases()
FIRST = "layer2/whole_jobs/plans 8x12 at 5 changes per s"  # compiles what tests of commands need later
NAMES = [
    pytest.param(name, marks=pytest.mark.slow if name.rpartition("/")[2] in SLOW else ())
    for name in sorted(CASES, key=lambda name: name != FIRST)
    if "/jobs/" not in name
]


def test_every_stored_result_has_its_case() -> None:
    files = [path for layer in ("layer1", "layer2") for path in (golden.HERE / layer).glob("*.json")]
    names = {
        f"{path.parent.name}/{path.stem.removesuffix('.avx2')}/{case}"
        for path in files
        for case in json.loads(path.read_text())
    }
    published = {name for name in names if "/published " in name} if not golden.DATA.is_dir() else set()
    assert names - published <= set(CASES)


@pytest.mark.e2e
@pytest.mark.parametrize("name", NAMES)
def test_result_is_the_stored_one(name: str, tmp_path: Path) -> None:
    if "/guard/" in name and (why_not := missing_compiler()) is not None:
        pytest.skip(why_not)
    now = json.loads(json.dumps(CASES[name](tmp_path)))
    assert list(golden.differences(golden.stored(name), now, tolerance=golden.tolerance_of(name))) == []
