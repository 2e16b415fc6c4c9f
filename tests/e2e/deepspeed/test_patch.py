"""The patch, applied to the pristine release that it names, and real engines built by the result."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

PATCH = Path(__file__).parents[3] / "patches" / "deepspeed-0.19.8.patch"
RELEASE = "0.19.8"

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


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the installed DeepSpeed, patched as the README says."""
    if metadata.version("deepspeed") != RELEASE:
        pytest.skip(f"DeepSpeed {RELEASE} is not installed ({metadata.version('deepspeed')} is)")
    if shutil.which("patch") is None:
        pytest.skip("the program `patch` is not installed")
    entry = next(file for file in metadata.files("deepspeed") or () if str(file) == "deepspeed/__init__.py")
    source = Path(str(entry.locate()))
    digest = base64.urlsafe_b64encode(hashlib.sha256(source.read_bytes()).digest()).rstrip(b"=").decode()
    if entry.hash is None or digest != entry.hash.value:
        pytest.skip("the installed DeepSpeed is not pristine")
    folder = tmp_path_factory.mktemp("site-packages")
    shutil.copytree(source.parent, folder / "deepspeed", ignore=shutil.ignore_patterns("__pycache__"))
    announced = subprocess.run(
        ["patch", "-p1", "-d", folder], input=PATCH.read_text(), capture_output=True, text=True, check=False
    )
    assert announced.returncode == 0, announced.stdout + announced.stderr
    assert announced.stdout.split() == ["patching", "file", "deepspeed/__init__.py"]  # no offset, no fuzz
    return folder


def test_changes_seven_lines_of_one_file() -> None:
    lines = PATCH.read_text().splitlines()
    added = [line[1:] for line in lines if line.startswith("+") and not line.startswith("+++")]
    assert len(added) == 7
    assert sum("perseus_ds.attach(engine)" in line for line in added) == 1
    assert not [line for line in lines if line.startswith("-") and not line.startswith("---")]


def test_an_engine_with_our_block_is_attached_and_without_us_it_trains_on_with_one_warning(
    patched: Path, tmp_path: Path
) -> None:
    (patched / "perseus_ds.py").write_text(STAND_IN)
    announced = run(patched, tmp_path)
    assert announced.returncode == 0, announced.stderr
    spoken = [
        line for line in announced.stdout.splitlines() if line.startswith(("building", "attached", "done"))
    ]
    assert spoken == [
        "building",
        "building perseus",
        "attached to PipelineEngine",
        "building perseus",
        f"done with {patched / 'deepspeed' / '__init__.py'}",
    ]
    assert (announced.stdout + announced.stderr).count("luck") == 1


def run(patched: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PYTHONPATH": str(patched),
        "PYTHONDONTWRITEBYTECODE": "1",  # the stand-in is written anew within a second
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # the entry point would attach by itself
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
        "LOCAL_RANK": "0",
    }
    command = [sys.executable, "-P", "-W", "ignore", "-c", PROGRAM, str(tmp_path / "store")]
    command.append(str(patched / "perseus_ds.py"))
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
