"""A whole DeepSpeed job on the fake driver, ended as jobs are ended: no clock stays locked."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml import FakeNvml
from hosts import family
from processes import eventually
from ranks import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
PERSEUS = {"enabled": True, "device": "nvml", "profile": {"min_window_s": 2.0, "max_clocks": 5}}


class Job:
    """Four ranks through DeepSpeed's own launcher, with ``device: nvml``."""

    def __init__(self, folder: Path) -> None:
        self.node = FakeNvml(folder / "gpus", gpus=4, call_us=2000, settle_us=5000, period_us=20_000)
        config = json.loads((ROOT / "configs" / "demo.json").read_text(encoding="utf-8"))
        config["perseus"] = {**PERSEUS, "run_dir": str(folder / "run")}
        (folder / "ds.json").write_text(json.dumps(config), encoding="utf-8")
        words = ["--num_gpus", "4", "--master_port", str(free_port()), ROOT / "scripts/demo_job/train.py"]
        words += ["--deepspeed_config", folder / "ds.json", "--steps", "3000"]
        own = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "DS_ACCELERATOR": "cpu",
            "TORCH_EXTENSIONS_DIR": str(ROOT / ".cache" / "torch_extensions"),
        }
        self._out = folder / "out"
        with self._out.open("w") as out:
            self.process = subprocess.Popen(
                [Path(sys.executable).with_name("deepspeed"), *words],
                env=self.node.environment() | own,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._out.read_text()

    def below(self, words: str) -> list[int]:
        """The job's own processes whose command line has these words."""
        return [pid for pid in family(self.process.pid) if words in command_line(pid)]

    def end(self) -> None:
        """Kill the whole group: launcher and ranks stay in it when the one above them is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.fixture
def job(node: FakeNvml, tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.end()


LAUNCHER = "deepspeed.launcher.launch"  # of the node; the command above it starts it
BLOWS = {  # whom, by its command line, the signal, and whether its ranks train on
    "a rank is killed": ("--local_rank=2", signal.SIGKILL, False),
    "as a scheduler's time-out": (LAUNCHER, signal.SIGTERM, False),
    "the launcher is killed": (LAUNCHER, signal.SIGKILL, True),
    "the command is killed": ("bin/deepspeed", signal.SIGKILL, True),
    "the command hands no SIGTERM on": ("bin/deepspeed", signal.SIGTERM, True),
}


@pytest.mark.parametrize(("whom", "number", "trains_on"), BLOWS.values(), ids=BLOWS)
def test_however_a_job_ends_and_where_its_launcher_is_gone(
    job: Job, whom: str, number: signal.Signals, *, trains_on: bool
) -> None:
    """Ranks without a launcher train on at default clocks."""
    planned = eventually(lambda: all(0 < mhz < 1410 for mhz in job.node.locked_mhz()), 600)
    assert planned, job.said[-3000:]
    guards, ranks = job.below("perseus_ds.guard"), job.below("--local_rank=")
    assert len(guards) == 4
    os.kill(job.below(whom)[-1], number)
    assert eventually(lambda: not any(map(command_line, guards)), 60)
    assert eventually(lambda: not any(job.node.locked_mhz()), 60)
    if trains_on:
        trained = job.said.count("loss")
        assert eventually(lambda: job.said.count("loss") > trained, 60)
        assert any("launcher" in line for line in job.said.splitlines())
        for rank in ranks:
            os.kill(rank, signal.SIGKILL)
