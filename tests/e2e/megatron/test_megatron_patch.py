"""The patch for Megatron-LM, applied to its own context lines, and a parser built by the result.

Megatron-LM is no package and is not here: this shows that the patch is well formed, that its argument is
read, and that what it calls attaches to the real megatron-core. It is applied to releases by hand
(patches/README.md).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

pytestmark = pytest.mark.e2e

PATCH = Path(__file__).parents[3] / "patches" / "megatron-lm-core-0.16.patch"

# What stands around the hunks, as far as the patched lines need it; the hunks' own lines are put in between.
BEFORE = """
import argparse, os

def add_megatron_arguments(parser):
    return parser

def load_yaml(path):
    return None

def parse_args(extra_args_provider=None):
    parser = argparse.ArgumentParser(
"""
BETWEEN = """
        parser = extra_args_provider(parser)

    args = parser.parse_args()
    args.yaml_cfg = None
    if args.yaml_cfg:
        assert args
"""
AFTER = """
    return args

parse_args()
import sys
from megatron.core.pipeline_parallel import schedules
from perseus_ds.adapters.megatron import wrappings_of
print("ATTACHED", len(list(wrappings_of(schedules))), os.environ.get("PERSEUS_CONFIG"))
"""


def hunks() -> list[list[str]]:
    """The lines of each hunk as they were before the patch."""
    found: list[list[str]] = []
    for line in PATCH.read_text().splitlines():
        if line.startswith("@@"):
            found.append([])
        elif found and not line.startswith("+"):
            found[-1].append(line[1:])
    return found


@pytest.fixture
def patched(tmp_path: Path) -> Path:
    if shutil.which("patch") is None:
        pytest.skip("the program `patch` is not installed")
    file = tmp_path / "megatron" / "training" / "arguments.py"
    file.parent.mkdir(parents=True)
    first, second = ("\n".join(lines) for lines in hunks())
    file.write_text(BEFORE.rstrip() + "\n" + first + BETWEEN.rstrip() + "\n" + second + AFTER)
    subprocess.run(["patch", "-p1", "-d", tmp_path], input=PATCH.read_text(), text=True, check=True)
    return file


@pytest.mark.parametrize("asked", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_argument_attaches_to_megatron_core(patched: Path, tmp_path: Path, asked: bool) -> None:  # noqa: FBT001
    config = tmp_path / "perseus.json"
    config.write_text(json.dumps({"run_dir": str(tmp_path)}))
    environment = {name: value for name, value in os.environ.items() if name != "PERSEUS_CONFIG"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", patched, *(["--perseus-config", config] if asked else [])],
        env=environment | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == (f"ATTACHED 1 {config}" if asked else "ATTACHED 0 None")
