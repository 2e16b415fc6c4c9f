"""A guard dies with its container, and with the control group that it may not leave: what is done instead.

A container is a PID namespace as far as a guard's life goes: it dies with its first process.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_nvml import UUID, FakeNvml
from processes import TRAINER, Start, eventually, free, no_container

from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import DevicePermissionError
from perseus_ds.guard.containment import NAME
from perseus_ds.guard.policy import Peer
from perseus_ds.guard.repair import repair
from perseus_ds.guard.service import may_open

pytestmark = pytest.mark.e2e

in_container = pytest.mark.skipif(no_container() is not None, reason=no_container() or "")
NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


class Container:
    """A trainer in a container of its own; ``first`` says that it is the container's first process."""

    def __init__(
        self, *, device: str = "automatic", first: bool = True, risk: bool = False, how: str = "runs"
    ) -> None:
        words = [sys.executable, str(TRAINER), "0", how, device, *(["unguarded"] if risk else [])]
        inside = words if first else ["sh", "-c", f"{shlex.join(words)}; exit 1"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        self.process = subprocess.Popen([*NAMESPACE, *inside], start_new_session=True, **pipes)
        self.said = self.process.stdout.readline()

    def kill(self, below: int) -> None:
        """Kill the process so far below the namespace's maker: the first one takes all others with it."""
        pid = self.process.pid
        for _ in range(below):
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)

    @property
    def is_gone(self) -> bool:
        return self.process.poll() is not None

    def end(self) -> None:
        if not self.is_gone:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.stdout.close()
        self.process.wait(30)


Begin = Callable[..., Container]


@pytest.fixture
def contained(node: FakeNvml) -> Iterator[Begin]:
    started: list[Container] = []

    def begin(**words: object) -> Container:
        started.append(Container(**words))
        return started[-1]

    yield begin
    for container in started:
        container.end()


@pytest.fixture
def inside(node: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No folder is named: what a container has by itself."""
    monkeypatch.delenv("PERSEUS_GUARD_DIR")
    monkeypatch.setenv("PERSEUS_GUARDD_SOCKET", str(tmp_path / "guardd.sock"))
    yield
    for left in Path("/run/perseus_ds").glob(f"{UUID[:13]}*"):
        left.unlink()


@in_container
@pytest.mark.usefixtures("inside")
def test_without_a_service_or_a_folder_no_clock_is_set(node: FakeNvml, contained: Begin) -> None:
    said = contained().said
    assert "in a container" in said
    assert "PERSEUS_GUARD_DIR" in said
    assert "allow_unguarded_container: true" in said
    assert node.state.gpu[0].sets == 0


ENDS = pytest.mark.parametrize(
    ("first", "kills"),
    [(True, 1), (True, 0), (False, 2), (False, 1)],
    ids=[
        "the first process is killed",
        "the first process ends by itself",
        "a rank below a shell is killed",
        "the container is killed",
    ],
)


def ended(node: FakeNvml, contained: Begin, *, first: bool, kills: int, device: str = "automatic") -> None:
    """Start a container, and end it once it has set a clock."""
    container = contained(device=device, first=first, how="runs" if kills else "vanishes")
    assert eventually(lambda: not free(node) or container.is_gone)
    if kills:
        container.kill(kills)
    assert eventually(lambda: container.is_gone)


@in_container
@pytest.mark.usefixtures("inside")
@ENDS
def test_with_the_service_outside_nothing_is_left(
    node: FakeNvml, start: Start, contained: Begin, *, first: bool, kills: int
) -> None:
    start()
    ended(node, contained, first=first, kills=kills)
    assert eventually(lambda: free(node))


@in_container
@ENDS
def test_with_a_journal_on_the_node_the_next_start_finds_it(
    node: FakeNvml, contained: Begin, *, first: bool, kills: int
) -> None:
    ended(node, contained, first=first, kills=kills, device="nvml")
    repair()
    assert free(node)


@in_container
@pytest.mark.usefixtures("inside")
def test_a_lock_left_by_a_container_is_not_taken_for_an_operators(node: FakeNvml, contained: Begin) -> None:
    with NvmlGpu(DeviceRequest("nvml")) as left:
        left.lock_clock(660)
    container = contained(risk=True, how="closes")
    assert eventually(lambda: container.is_gone)
    assert node.state.gpu[0].sets > 1, "who takes the risk sets clocks"
    assert eventually(lambda: free(node))


@in_container
@pytest.mark.usefixtures("inside", "node")
def test_doctor_says_it() -> None:
    command = [*NAMESPACE, sys.executable, "-m", "perseus_ds", "doctor"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert UUID.format(0) in told.stdout
    assert "in a container" in told.stdout


# A job's whole control group is killed at once: its guard is elsewhere, or the job was warned before.

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
def test_a_job_that_is_killed_with_its_group(
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
def test_a_guard_that_may_not_leave_says_so_first(node: FakeNvml, group: Path, confined: list[str]) -> None:
    job = in_group(group, *confined, sys.executable, "-c", WATCHER)
    said = job.communicate(timeout=60)[0]
    assert "control group" in said
    found = in_group(group, *confined, sys.executable, "-m", "perseus_ds", "doctor")
    assert "not leave" in found.communicate(timeout=60)[0]


@needs_groups
def test_a_service_that_ignores_its_children_hands_out_nothing(group: Path) -> None:
    """A shell may pass it on; the kernel reaps the children then, and nobody knows how they ended."""
    peer = Peer(os.getpid(), 0, cgroup=f"/{group.relative_to(ROOT)}")
    assert may_open(peer, "/dev/null")
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(DevicePermissionError, match="SIGCHLD"):
            may_open(peer, "/dev/no-gpu")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert not may_open(peer, "/dev/no-gpu")


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/sys/fs/cgroup/devices/devices.list").exists(),
    reason="no device controller of control groups version 1 here",
)
def test_a_gpu_is_a_clients_own_where_its_device_controller_lets_it_open_it() -> None:
    group = Path(f"/sys/fs/cgroup/devices/perseus-test-{os.getpid()}")
    group.mkdir()
    try:
        (group / "devices.deny").write_text("c 1:5 rwm")  # /dev/zero
        peer = Peer(os.getpid(), 0, devices=f"/{group.name}")
        assert (may_open(peer, "/dev/null"), may_open(peer, "/dev/zero")) == (True, False)
    finally:
        group.rmdir()


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
    peer = Peer(os.getpid(), 0, cgroup=f"/{group.relative_to(ROOT)}", devices="/")
    try:
        with pytest.raises(DevicePermissionError, match=f"{group}/cgroup.procs"):
            may_open(peer, "/dev/null")
    finally:
        threaded.rmdir()
