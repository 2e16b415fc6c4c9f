"""A package of somebody else's brings an adapter: pip installs it, and jobs of its framework are served."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import events

pytestmark = pytest.mark.e2e

PACKAGE = Path(__file__).parent / "outside_adapter"

# An ordinary script of that framework's user: nothing of us in it but, where asked for, a call of attach.
SCRIPT = """
import sys, torch
torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
import plodder
trainer = plodder.Trainer(4)
if len(sys.argv) > 2:
    import perseus_ds
    perseus_ds.attach(trainer, config={"run_dir": sys.argv[2], "device": "simulated", "mode": "observe"})
print("LOSSES", [trainer.step() for _ in range(5)])
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
    ]
    subprocess.run([*command, "--target", str(target), str(PACKAGE)], check=True)
    return target


def trained(site: Path, scratch: Path, *arguments: str, config: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PERSEUS_")}
    environment |= {"PYTHONPATH": str(site), "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    if config is not None:
        environment["PERSEUS_CONFIG"] = str(config)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(scratch / "store"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (scratch / "store").unlink(missing_ok=True)
    return done.stdout + done.stderr


def losses(output: str) -> str:
    return next(line for line in output.splitlines() if line.startswith("LOSSES"))


@pytest.fixture(scope="module")
def plain(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the output of the same script where nothing switches us on."""
    return trained(installed, tmp_path_factory.mktemp("plain"))


@pytest.mark.slow
def test_a_file_switches_it_on_from_the_frameworks_import_on(
    installed: Path, plain: str, tmp_path: Path
) -> None:
    file = tmp_path / "perseus.json"
    file.write_text(json.dumps({"run_dir": str(tmp_path / "run"), "device": "simulated", "mode": "observe"}))
    output = trained(installed, tmp_path, config=file)
    attached = events(tmp_path / "run")[0]
    assert attached["event"] == "attached"
    assert attached["fingerprint"]["plodder"] == "1.0"
    assert losses(output) == losses(plain)


@pytest.mark.slow
def test_attach_in_code_finds_its_adapter(installed: Path, plain: str, tmp_path: Path) -> None:
    output = trained(installed, tmp_path, str(tmp_path / "run"))
    assert events(tmp_path / "run")[0]["event"] == "attached"
    assert losses(output) == losses(plain)


def test_without_the_file_nothing_of_ours_is_there(plain: str) -> None:
    assert "perseus" not in plain
