"""Jobs of Hugging Face's Trainer and Accelerate: they start with our block, learn the same, and save."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import hjson
import pytest
from programs import JOBS, block, environment, judge, run, torchrun, written
from ranks import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
TRAINER: dict[str, Any] = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}},
}
ACCELERATE: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 1,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
}
YAML = """
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 2
main_process_port: {port}
deepspeed_config:
  deepspeed_config_file: {file}
  zero3_init_flag: false
"""


def configurations() -> dict[str, dict[str, Any]]:
    """Every configuration that we ship and every block that a page shows, within one where it is a block."""
    blocks = {str(path): hjson.loads(path.read_text()) for path in (ROOT / "configs/blocks").glob("*.json")}
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for number, shown in enumerate(re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)):
            content = json.loads(f"{{{shown}}}") if shown.startswith('"') else hjson.loads(shown)
            blocks[f"{page} {number}"] = content.get("perseus", content)
    whole = {str(path): hjson.loads(path.read_text()) for path in (ROOT / "configs").glob("*.json")}
    found = {name: {"perseus": one} for name, one in blocks.items()} | whole
    return {name: {"zero_optimization": {"stage": 1}} | one for name, one in found.items()}


def refused(folder: Path, given: dict[str, dict[str, Any]]) -> dict[str, str]:
    """What Accelerate refuses of them, and why."""
    file = written(folder / "given.json", given)
    done = subprocess.run(
        [sys.executable, JOBS / "accelerate_check.py", file],
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_accelerate_refuses_nothing_that_we_ship(tmp_path: Path) -> None:
    given = configurations()
    assert len(given) >= 8
    ended = {"zero_optimization": {"stage": 1}, "perseus": {"mode": "auto"}}
    answer = refused(tmp_path, given | {"ends the job": ended})
    assert list(answer) == ["ends the job"], answer
    assert answer["ends the job"].startswith("`perseus.mode`")


def test_a_job_of_the_trainer_saves_and_learns_the_same(tmp_path: Path) -> None:
    ours = written(tmp_path / "ours.json", TRAINER | {"perseus": block(tmp_path / "run")})
    theirs = written(tmp_path / "theirs.json", TRAINER)
    served = run([*torchrun(2), JOBS / "hf_trainer.py", ours], tmp_path)
    plain = run([*torchrun(2), JOBS / "hf_trainer.py", theirs], tmp_path, steps=served.steps)
    assert "2 replicas" in served.printed
    judge(served, plain, most_slowdown_pct=10.0)


def test_a_job_of_accelerates_own_launcher_saves_and_learns_the_same(tmp_path: Path) -> None:
    ours = ACCELERATE | {"perseus": block(tmp_path / "run")}
    served = run(launched(tmp_path, written(tmp_path / "ours.json", ours)), tmp_path)
    theirs = launched(tmp_path, written(tmp_path / "theirs.json", ACCELERATE))
    plain = run(theirs, tmp_path, steps=served.steps)
    judge(served, plain, most_slowdown_pct=10.0)


def launched(folder: Path, file: Path) -> list[str | Path]:
    """The command that starts the job with Accelerate's launcher and its YAML."""
    (folder / "accelerate.yaml").write_text(YAML.format(port=free_port(), file=file))
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file"]
    return [*launch, folder / "accelerate.yaml", JOBS / "accelerated.py"]
