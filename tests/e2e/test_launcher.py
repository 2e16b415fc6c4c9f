"""The real launcher, an ordinary training script that knows nothing of us, and a plan at the end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import free_port

from perseus_ds.plan import read_plans

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_an_unchanged_script_profiles_and_plans(tmp_path: Path) -> None:
    content = json.loads((ROOT / "configs" / "demo.json").read_text())
    content["perseus"]["run_dir"] = str(tmp_path / "run")
    content["perseus"]["profile"] = {"min_window_s": 1.0, "max_clocks": 2, "warmup_iterations": 1}
    content["gradient_accumulation_steps"] = 4
    (tmp_path / "ds.json").write_text(json.dumps(content))
    launcher = Path(sys.executable).parent / "deepspeed"
    command = [launcher, "--num_gpus", "2", "--master_port", str(free_port()), "--log_level", "error"]
    script = [ROOT / "scripts/demo_job/train.py", "--stages", "2", "--blocks", "2", "--steps", "80"]
    done = subprocess.run(
        [*command, *script, "--deepspeed_config", tmp_path / "ds.json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        cwd=tmp_path,
        env=os.environ
        | {
            "PATH": f"{launcher.parent}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "DS_ACCELERATOR": "cpu",
            "TORCH_EXTENSIONS_DIR": str(ROOT / ".cache" / "torch_extensions"),
        },
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "perseus: attached" in done.stderr
    assert (tmp_path / "run" / "profile.json").exists()
    assert len(read_plans(tmp_path / "run" / "plan.json")) > 1
