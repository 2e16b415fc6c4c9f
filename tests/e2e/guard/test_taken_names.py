"""A name taken by somebody who may not set clocks holds no clock: other users, for real."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_nvml import UUID, FakeNvml
from test_kills import Job, alive, eventually, free
from test_tired_driver import left_locked, reset

from perseus_ds.device import DeviceRequest
from perseus_ds.device.choose import choose
from perseus_ds.device.guard import Outcome, repair
from perseus_ds.device.guard import reset as reset_all
from perseus_ds.device.guard.claim.node_lock import NodeLock
from perseus_ds.errors import DeviceUnavailableError

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become others"),
    pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv"),
]

TAKES = """
import os, socket, sys, time
name, full, becomes = sys.argv[1:4]
while True:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind("\\0perseus_ds/" + name)
        break
    except OSError:
        sock.close()
        time.sleep(0.0001)
if full != "deaf":
    sock.listen(0)
crowd = []
while full == "full":
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.setblocking(False)
    crowd.append(one)
    try:
        one.connect("\\0perseus_ds/" + name)
    except BlockingIOError:
        break
print(os.getpid(), flush=True)
if becomes:
    sock.set_inheritable(True)
    os.execv(becomes, [becomes, "600"])
time.sleep(600)
"""
OTHER = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"]
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable  # others may run it
ROOT_OF_NOTHING = [*OTHER, "unshare", "--user", "--map-root-user"]
WAYS = {
    "another user": (OTHER, "", False),
    "a full backlog": (OTHER, "full", False),
    "bound and no more": (OTHER, "deaf", False),
    "root of a user namespace": (ROOT_OF_NOTHING, "", False),
    "and a full backlog": (ROOT_OF_NOTHING, "full", False),
    "a setuid program in its place": (OTHER, "", True),
}
Take = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def setuid_sleep() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        program = shutil.copy(shutil.which("sleep"), folder)
        Path(program).chmod(0o4755)
        yield program


@pytest.fixture
def take(setuid_sleep: str) -> Iterator[Take]:
    """Start somebody who takes the first GPU's name as soon as it is free."""
    started = []

    def start(way: str) -> subprocess.Popen[str]:
        who, full, becomes = WAYS[way]
        command = [*who, PYTHON, "-c", TAKES, UUID.format(0), full, setuid_sleep if becomes else ""]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FAKE")}
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd="/"))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.stdout.close()
        process.wait()


def taken(process: subprocess.Popen[str]) -> str:
    """Wait until it has the name; return its number."""
    return process.stdout.readline().strip()


@pytest.mark.parametrize("way", WAYS)
def test_a_taken_name_holds_no_clock_and_who_took_it_is_said(node: FakeNvml, take: Take, way: str) -> None:
    left_locked(node)
    number = taken(take(way))
    told = reset(node)
    assert (told.returncode, free(node)) == (0, True), told.stdout
    assert f"{UUID.format(0)}: put back (user 12345, process {number} holds its name" in told.stdout


def test_neither_does_it_where_no_journal_is(node: FakeNvml, take: Take) -> None:
    taken(take("and a full backlog"))
    node.state.gpu[0].locked_mhz, node.state.gpu[0].utilization = 660, 50
    [done] = reset_all((UUID.format(0),))
    assert done.outcome is Outcome.RESTORED
    assert "user 12345" in done.detail
    assert free(node)


def test_the_next_job_sets_clocks_and_says_who_took_the_name(node: FakeNvml, take: Take) -> None:
    number = taken(take("and a full backlog"))
    with choose(DeviceRequest("nvml")).gpu as gpu:
        gpu.lock_clock(900)
        gpu.sync()
        assert node.locked_mhz() == [900, 0]
        [said] = [one.line for one in gpu.conflicts() if one.kind.name == "NAME_TAKEN"]
        assert f"user 12345, process {number}" in said
    assert free(node)


def test_a_living_trainer_makes_good_though_the_name_is_taken(node: FakeNvml, take: Take) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    waits = take("and a full backlog")
    node.refuse_for(1.0)
    job.kill_guard()
    taken(waits)
    assert eventually(lambda: free(node))
    assert alive(job.process.pid)
    job.kill_trainer()
    job.wait()


def test_root_is_believed_and_every_asker_is_told_the_holder(node: FakeNvml) -> None:
    held = NodeLock(UUID.format(0))
    for _ in range(200):  # more than wait in any backlog
        with pytest.raises(DeviceUnavailableError, match=rf"\(user 0, process {os.getpid()}\)"):
            NodeLock(UUID.format(0))
    node.state.gpu[0].locked_mhz, node.state.gpu[0].utilization = 660, 50
    [done] = reset_all((UUID.format(0),))
    assert done.outcome is Outcome.HELD
    assert node.locked_mhz() == [660, 0]
    held.release()
    again = NodeLock(UUID.format(0))
    assert again.passed is None
    again.release()


def test_a_user_with_the_right_to_set_clocks_is_believed(node: FakeNvml) -> None:
    rights = ["--inh-caps=+sys_admin", "--ambient-caps=+sys_admin"]
    service = subprocess.Popen(
        [*OTHER, *rights, PYTHON, "-c", TAKES, UUID.format(0), "", ""], stdout=subprocess.PIPE, text=True
    )
    try:
        number = taken(service)
        with pytest.raises(DeviceUnavailableError, match=rf"\(user 12345, process {number}\)"):
            NodeLock(UUID.format(0))
    finally:
        service.kill()
        service.stdout.close()
        service.wait()
    assert repair() == ()
