"""The golden jobs, in a file of their own: another worker than that of the other golden cases runs them.

One of each framework runs by default.
"""

from __future__ import annotations

import json
from pathlib import Path

import golden
import job_cases
import pytest

BY_DEFAULT = {"deepspeed 1f1b", "megatron interleaved", "torch ZBV", "zero 1"}
NAMES = [pytest.param(name, marks=() if name in BY_DEFAULT else pytest.mark.slow) for name in job_cases.CASES]


@pytest.mark.e2e
@pytest.mark.parametrize("name", NAMES)
def test_job_is_the_stored_one(name: str, tmp_path: Path) -> None:
    if "megatron" in name:
        pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    now = json.loads(json.dumps(job_cases.record(job_cases.CASES[name], tmp_path)))
    assert list(golden.differences(golden.stored(f"layer1/jobs/{name}"), now)) == []
