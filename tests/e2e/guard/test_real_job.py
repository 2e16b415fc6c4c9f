"""A whole DeepSpeed job on the fake driver, ended as jobs are ended: no clock stays locked."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_nvml import FakeNvml
from processes import eventually
from ranks import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
PERSEUS = {"enabled": True, "device": "nvml", "profile": {"min_window_s": 2.0, "max_clocks": 5}}


class Job:
    """Four ranks through DeepSpeed's own launcher, with ``device: nvml``."""

    def __init__(self, node: FakeNvml, folder: Path) -> None:
        config = json.loads((ROOT / "configs" / "demo.json").read_text(encoding="utf-8"))
        config["perseus"] = {**PERSEUS, "run_dir": str(folder / "run")}
        (folder / "ds.json").write_text(json.dumps(config), encoding="utf-8")
        launcher = str(Path(sys.executable).with_name("deepspeed"))
        script = [
            str(ROOT / "scripts" / "demo_job" / "train.py"),
            "--deepspeed_config",
            str(folder / "ds.json"),
        ]
        with (folder / "out").open("w") as out:
            self.process = subprocess.Popen(
                [launcher, "--num_gpus", "4", "--master_port", str(free_port()), *script, "--steps", "3000"],
                env={
                    **node.environment(),
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                    "OMP_NUM_THREADS": "1",
                    "DS_ACCELERATOR": "cpu",
                    "TORCH_EXTENSIONS_DIR": str(ROOT / ".cache" / "torch_extensions"),
                },
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def below(self, words: str) -> list[int]:
        """The job's own processes whose command line has these words."""
        return [pid for pid in descendants(self.process.pid) if words in command_line(pid)]

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


def descendants(pid: int) -> list[int]:
    try:
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return []
    return [*children, *(below for child in children for below in descendants(child))]


@pytest.fixture
def node_of_four(node: FakeNvml, tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path / "gpus", gpus=4, call_us=2000, settle_us=5000, period_us=20_000)


@pytest.fixture
def job(node_of_four: FakeNvml, tmp_path: Path) -> Iterator[Job]:
    job = Job(node_of_four, tmp_path)
    yield job
    job.end()


def kill_a_rank(job: Job) -> None:
    os.kill(job.below("--local_rank=2")[-1], signal.SIGKILL)


def terminate_the_launcher(job: Job) -> None:
    """Play a scheduler's time-out: the node's launcher ends its ranks by SIGTERM, then SIGKILL."""
    os.kill(job.below("deepspeed.launcher.launch")[0], signal.SIGTERM)


def kill_the_launcher(job: Job) -> None:
    os.kill(job.below("deepspeed.launcher.launch")[0], signal.SIGKILL)


def kill_the_command(job: Job) -> None:
    job.process.kill()


def terminate_the_command(job: Job) -> None:
    """The `deepspeed` command hands no SIGTERM on, on one node: its ranks train on."""
    job.process.terminate()


@pytest.mark.parametrize("blow", [kill_the_launcher, kill_the_command, terminate_the_command])
def test_ranks_whose_launcher_is_gone_train_on_at_default_clocks(
    node_of_four: FakeNvml, job: Job, tmp_path: Path, blow: Callable[[Job], None]
) -> None:
    planned(node_of_four, tmp_path)
    guards, ranks = job.below("perseus_ds.guard"), job.below("--local_rank=")
    blow(job)
    assert eventually(lambda: not any(map(command_line, guards)), 60)
    assert not any(node_of_four.locked_mhz())
    trained = (tmp_path / "out").read_text().count("loss")
    assert eventually(lambda: (tmp_path / "out").read_text().count("loss") > trained, 60)
    assert any("launcher" in line for line in (tmp_path / "out").read_text().splitlines())
    for rank in ranks:
        os.kill(rank, signal.SIGKILL)


def planned(node: FakeNvml, folder: Path) -> None:
    """Wait until the plan's clocks are set."""
    locked = eventually(lambda: all(0 < mhz < 1410 for mhz in node.locked_mhz()), 600)
    assert locked, (folder / "out").read_text()[-3000:]


@pytest.mark.parametrize("blow", [kill_a_rank, terminate_the_launcher])
def test_however_the_job_ends(
    node_of_four: FakeNvml, job: Job, tmp_path: Path, blow: Callable[[Job], None]
) -> None:
    planned(node_of_four, tmp_path)
    guards = job.below("perseus_ds.guard")
    assert len(guards) == 4
    blow(job)
    assert eventually(lambda: not any(map(command_line, guards)), 60)
    assert eventually(lambda: not any(node_of_four.locked_mhz()), 60)
