"""A job's whole control group is killed at once: its guard is elsewhere, or the job was warned before."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_nvml import FakeNvml
from processes import TRAINER, eventually

from perseus_ds.errors import DevicePermissionError
from perseus_ds.guard.containment import NAME
from perseus_ds.guard.policy import Peer
from perseus_ds.guard.service import may_open

pytestmark = pytest.mark.e2e

WATCHER = """
import sys, time
from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.guard.open import choose
with choose(DeviceRequest("nvml", lock=True)).gpu as gpu:
    for _ in range(1000):
        time.sleep(0.01)
        for seen in gpu.conflicts():
            print(seen.line, flush=True)
            sys.exit()
"""


def unified() -> Path | None:
    """Mount point of version 2 of control groups, if a group can be made and killed there."""
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        probe = root / f"perseus-probe-{os.getpid()}"
        with contextlib.suppress(OSError):
            if (root / "cgroup.procs").exists():
                probe.mkdir()
                killable = (probe / "cgroup.kill").exists()
                probe.rmdir()
                return root if killable else None
    return None


ROOT = unified()
needs_groups = pytest.mark.skipif(ROOT is None, reason="no control group of version 2 can be made here")


@pytest.fixture
def group() -> Iterator[Path]:
    assert ROOT is not None
    had = (ROOT / NAME).exists()
    slice_ = ROOT / f"perseus-test-{os.getpid()}"
    group = slice_ / "job"
    group.mkdir(parents=True)
    yield group
    (group / "cgroup.kill").write_text("1")
    assert eventually(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()
    slice_.rmdir()
    assert had or eventually(lambda: removed(ROOT / NAME))


def removed(group: Path) -> bool:
    """Remove what the first guard made, once the last one is gone."""
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


def in_group(group: Path, *words: str) -> subprocess.Popen[str]:
    """Start a program in a control group; it joins by itself, before it begins."""
    joining = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh"]
    return subprocess.Popen([*joining, *words], stdout=subprocess.PIPE, text=True, start_new_session=True)


def kill_by_the_kernel(group: Path) -> None:
    """End a group like systemd (since 250), runc and Kubernetes; the kernel out of memory does the same."""
    (group / "cgroup.kill").write_text("1")


def kill_one_by_one(group: Path) -> None:
    """Signal every process of the group, like systemd's ``KillMode=control-group`` and Slurm."""
    for _ in range(10):
        for pid in map(int, (group / "cgroup.procs").read_text().split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@needs_groups
@pytest.mark.parametrize("blow", [kill_by_the_kernel, kill_one_by_one])
def test_a_job_that_is_killed_with_its_whole_group(
    node: FakeNvml, group: Path, blow: Callable[[Path], None]
) -> None:
    job = in_group(group, sys.executable, str(TRAINER), "1", "runs")
    assert int(job.stdout.readline())
    assert eventually(lambda: any(node.locked_mhz()))
    blow(group)
    job.wait(30)
    job.stdout.close()
    assert eventually(lambda: not any(node.locked_mhz()))


@needs_groups
@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare")
@pytest.mark.parametrize(
    "confined",
    [
        ["unshare", "--cgroup"],
        ["unshare", "--mount", "sh", "-c", f'mount -o remount,bind,ro {ROOT} && exec "$@"', "sh"],
    ],
    ids=["a namespace of its own", "read-only"],
)
def test_a_guard_that_may_not_leave_says_so_beforehand(
    node: FakeNvml, group: Path, confined: list[str]
) -> None:
    job = in_group(group, *confined, sys.executable, "-c", WATCHER)
    said = job.communicate(timeout=60)[0]
    assert "control group" in said
    found = in_group(group, *confined, sys.executable, "-m", "perseus_ds", "doctor")
    assert "not leave" in found.communicate(timeout=60)[0]


@needs_groups
def test_a_guard_that_leaves_says_nothing(node: FakeNvml, group: Path) -> None:
    found = in_group(group, sys.executable, "-m", "perseus_ds", "doctor")
    assert "control group" not in found.communicate(timeout=60)[0]


@needs_groups
@pytest.mark.skipif(
    not Path("/sys/fs/cgroup/devices").is_dir(), reason="needs version 1's device controller too"
)
def test_the_group_that_cannot_be_joined_is_the_one_that_is_named(group: Path) -> None:
    """A group beside a threaded one can hold no process: cgroup-v2.rst, "Threads"."""
    threaded = group.with_name("threaded")
    threaded.mkdir()
    (threaded / "cgroup.type").write_text("threaded")
    peer = Peer(os.getpid(), 0, 0, cgroup=f"/{group.relative_to(ROOT)}", devices="/")
    try:
        with pytest.raises(DevicePermissionError, match=f"{group}/cgroup.procs"):
            may_open(peer, "/dev/null")
    finally:
        threaded.rmdir()
