"""The patches, applied to what they name, and engines and parsers built by the result.

DeepSpeed's is applied to the pristine release that is installed. Megatron-LM is no package and is not here:
its patch is applied to its own context lines, and what it calls attaches to the real megatron-core. It is
applied to releases by hand (patches/README.md).
"""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

PATCHES = Path(__file__).parents[2] / "patches"
RELEASE = "0.19.8"
DEEPSPEED = PATCHES / f"deepspeed-{RELEASE}.patch"
MEGATRON = PATCHES / "megatron-lm-core-0.16.patch"


def patched_by(patch: Path, folder: Path) -> str:
    """Apply a patch as the README says; return what the program says."""
    if shutil.which("patch") is None:
        pytest.skip("the program `patch` is not installed")
    command = ["patch", "-p1", "-d", folder]
    done = subprocess.run(command, input=patch.read_text(), stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def run(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a Python of its own in which the entry point does not attach by itself."""
    kept = {name: value for name, value in os.environ.items() if name != "PERSEUS_CONFIG"}
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", *words],
        env=kept | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done


# Stands in for us and says when it is called.
STAND_IN = """
def attach(engine):
    print("attached to", type(engine).__name__)
"""

# Builds a pipeline engine of one stage: without our block, with it, and with it where we cannot be imported.
PROGRAM = """
import os, sys
from pathlib import Path
import deepspeed, torch
from deepspeed.pipe import LayerSpec, PipelineModule

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
config = {
    "train_micro_batch_size_per_gpu": 1,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
}
def build(block):
    model = PipelineModule([LayerSpec(torch.nn.Linear, 2, 2)], num_stages=1, loss_fn=torch.nn.MSELoss())
    print("building", *block)
    deepspeed.initialize(model=model, config=config | block)

ours = {"perseus": {"enabled": True}}
build({})
build(ours)
Path(sys.argv[2]).write_text("raise ImportError('no such luck')")
del sys.modules["perseus_ds"]
build(ours)
print("done with", deepspeed.__file__)
"""


def test_deepspeeds_changes_seven_lines_of_one_file() -> None:
    lines = DEEPSPEED.read_text().splitlines()
    added = [line[1:] for line in lines if line.startswith("+") and not line.startswith("+++")]
    assert len(added) == 7
    assert sum("perseus_ds.attach(engine)" in line for line in added) == 1
    assert not [line for line in lines if line.startswith("-") and not line.startswith("---")]


def test_an_engine_with_our_block_is_attached_or_trains_on_without_us(tmp_path: Path) -> None:
    if metadata.version("deepspeed") != RELEASE:
        pytest.skip(f"DeepSpeed {RELEASE} is not installed ({metadata.version('deepspeed')} is)")
    entry = next(file for file in metadata.files("deepspeed") or () if str(file) == "deepspeed/__init__.py")
    source = Path(str(entry.locate()))
    digest = base64.urlsafe_b64encode(hashlib.sha256(source.read_bytes()).digest()).rstrip(b"=").decode()
    if entry.hash is None or digest != entry.hash.value:
        pytest.skip("the installed DeepSpeed is not pristine")
    shutil.copytree(source.parent, tmp_path / "deepspeed", ignore=shutil.ignore_patterns("__pycache__"))
    said = patched_by(DEEPSPEED, tmp_path)
    assert said.split() == ["patching", "file", "deepspeed/__init__.py"], "no offset, no fuzz"
    (tmp_path / "perseus_ds.py").write_text(STAND_IN)
    done = run(
        *("-c", PROGRAM, tmp_path / "store", tmp_path / "perseus_ds.py"),
        PYTHONPATH=str(tmp_path),
        PYTHONDONTWRITEBYTECODE="1",  # the stand-in is written anew within a second
        DS_ACCELERATOR="cpu",
        OMP_NUM_THREADS="1",
        LOCAL_RANK="0",
    )
    spoken = [line for line in done.stdout.splitlines() if line.startswith(("building", "attached", "done"))]
    assert spoken == [
        "building",
        "building perseus",
        "attached to PipelineEngine",
        "building perseus",
        f"done with {tmp_path / 'deepspeed' / '__init__.py'}",
    ]
    assert (done.stdout + done.stderr).count("luck") == 1


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


def hunks() -> list[str]:
    """The lines of each hunk as they were before the patch."""
    _, *found = MEGATRON.read_text().split("\n@@")
    return [
        "\n".join(line[1:] for line in hunk.splitlines()[1:] if not line.startswith("+")) for hunk in found
    ]


@pytest.mark.parametrize("asked", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_argument_attaches_to_megatron_core(tmp_path: Path, *, asked: bool) -> None:
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    file, config = tmp_path / "megatron" / "training" / "arguments.py", tmp_path / "perseus.json"
    file.parent.mkdir(parents=True)
    first, second = hunks()
    file.write_text(BEFORE.rstrip() + "\n" + first + BETWEEN.rstrip() + "\n" + second + AFTER)
    patched_by(MEGATRON, tmp_path)
    config.write_text(json.dumps({"run_dir": str(tmp_path)}))
    done = run(file, *(["--perseus-config", config] if asked else []))
    assert done.stdout.splitlines()[-1] == (f"ATTACHED 1 {config}" if asked else "ATTACHED 0 None")
