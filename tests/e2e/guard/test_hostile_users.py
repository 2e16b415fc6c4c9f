"""Nobody but its holder ends a lease or starves the service: other users, too many of them, and lies."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_nvml import UUID, FakeNvml
from processes import EVERYTHING, PROGRAM, Daemon, ask, eventually, lock

from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.errors import DevicePermissionError, DeviceUnavailableError
from perseus_ds.guard.open import choose

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(os.geteuid() != 0, reason="only root can become others")]

Start = Callable[..., Daemon]
ROOTS = "user=0 gpus=*"
CONNECTS = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
held, refused = [], 0
for _ in range(int(sys.argv[2])):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(sys.argv[1])
    sock.settimeout(60)
    held.append(sock)
    if len(held) >= 200:
        refused += sum(b'"refused"' in one.recv(4096) for one in held)
        [one.close() for one in held]
        held = []
print(refused)
"""


def open_to_all(daemon: Daemon) -> None:
    """Let other users as far as the socket, so that it is the service that keeps them out."""
    daemon.path.chmod(0o666)
    temporary = Path(tempfile.gettempdir())
    for folder in daemon.path.parents:
        if temporary in folder.parents:  # those of pytest, however many
            folder.chmod(0o755)


def test_connects_of_a_user_on_no_rule_cost_the_holder_nothing(node: FakeNvml, start: Start) -> None:
    daemon = start(ROOTS)
    open_to_all(daemon)
    holder, _ = daemon.take()
    with holder:
        crowd = subprocess.Popen(
            [sys.executable, "-c", CONNECTS, str(daemon.path), "2000"], stdout=subprocess.PIPE, text=True
        )
        number = 0
        while crowd.poll() is None:
            number += 1
            holder.send(b'{"do":"lock","number":%d,"clock_mhz":%d}' % (number, 900 if number % 2 else 705))
            assert ask(holder, do="sync")["is"] == "synced"
        assert crowd.communicate()[0] == "2000\n"
        assert daemon.process.poll() is None
        assert node.locked_mhz()[0] in {900, 705}


@contextlib.contextmanager
def at_most_processes(pid: int, more: int) -> Iterator[None]:
    """Keep a process from having more than so many threads more than it has."""
    roots = [Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")]
    root = next((root for root in roots if (root / "cgroup.procs").exists()), None)
    if root is None:
        pytest.skip("no pids controller is mounted")
    group = root / f"perseus-test-{os.getpid()}"
    group.mkdir()
    try:
        if not (group / "pids.max").exists():
            pytest.skip("no pids controller for a group of ours")
        (group / "cgroup.procs").write_text(str(pid))
        (group / "pids.max").write_text(str(int((group / "pids.current").read_text()) + more))
        yield
        (root / "cgroup.procs").write_text(str(pid))
    finally:
        assert eventually(lambda: not (group / "cgroup.procs").read_text() or not _alive(pid))
        group.rmdir()


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_thread_that_cannot_be_had_is_that_clients_refusal(node: FakeNvml, start: Start) -> None:
    daemon = start(EVERYTHING)
    holder, _ = daemon.take()
    with holder, contextlib.ExitStack() as stack:
        lock(holder, 900)
        with at_most_processes(daemon.process.pid, 3):
            crowd = [stack.enter_context(daemon.connect()) for _ in range(40)]
            told = [json.loads(sock.recv(4096)) for sock in crowd[3:]]
            assert all("cannot serve" in one["message"] for one in told)
            holder.send(b'{"do":"lock","number":2,"clock_mhz":705}')
            assert ask(holder, do="sync")["is"] == "synced"
        assert daemon.process.poll() is None
        assert node.locked_mhz() == [705, 0]
        late, answer = daemon.take(1)
        with late:
            assert answer["is"] == "taken"


def test_one_user_does_not_take_all_connections(start: Start) -> None:
    daemon = start(EVERYTHING)
    with contextlib.ExitStack() as stack:
        for _ in range(256):
            stack.enter_context(daemon.connect())
        extra = stack.enter_context(daemon.connect())
        assert "too many" in json.loads(extra.recv(4096))["message"]


def test_a_lease_ends_with_the_process_that_took_it_whoever_has_its_descriptor(
    node: FakeNvml, start: Start
) -> None:
    daemon = start(EVERYTHING)
    code = (
        "import os, socket, sys, time\n"
        "sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        f"sock.connect({str(daemon.path)!r})\n"
        f'sock.send(b\'{{"do":"take","uuid":"{UUID.format(0)}","owner":"x","backend":"nvml","lease_s":600}}\')\n'
        "sock.recv(4096)\n"
        'sock.send(b\'{"do":"lock","number":1,"clock_mhz":900}\')\n'
        "if os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "time.sleep(60)\n"
    )
    client = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        assert eventually(lambda: node.locked_mhz() == [900, 0])
        client.kill()
        assert eventually(lambda: node.locked_mhz() == [0, 0])
    finally:
        os.killpg(client.pid, signal.SIGKILL)
        client.wait()


def test_the_backend_is_the_services_choice(node: FakeNvml, start: Start) -> None:
    with start(EVERYTHING).connect() as sock:
        answer = ask(sock, do="take", uuid=UUID.format(0), owner="x", backend="amdsmi", lease_s=30)
        assert answer["is"] == "taken"
        lock(sock, 900)
        assert node.locked_mhz() == [900, 0]


def test_an_owner_is_printed_without_control_characters(start: Start) -> None:
    daemon = start(EVERYTHING)
    with daemon.connect() as sock:
        ask(sock, do="take", uuid=UUID.format(0), owner="x\n\x1b[2J", backend="nvml", lease_s=30)
        with pytest.raises(DeviceUnavailableError, match=r"held by.*pid") as caught:
            choose(DeviceRequest("guardd"))
        assert str(caught.value).isprintable()


def test_two_services_with_one_folder_do_not_share_a_gpu(
    node: FakeNvml, start: Start, tmp_path: Path
) -> None:
    first, _ = start(EVERYTHING).take()
    second = Daemon(tmp_path / "second.sock", EVERYTHING)
    try:
        with first:
            sock, answer = second.take()
            sock.close()
            assert answer["is"] == "refused"
            assert "held" in answer["message"]
        assert eventually(lambda: _taken(second))
    finally:
        second.end()


def _taken(daemon: Daemon) -> bool:
    sock, answer = daemon.take()
    sock.close()
    return answer["is"] == "taken"


NODES = """
set -e
mount --make-rprivate /
mkdir -p "$1" && mount -t tmpfs none "$1"
for node in null zero full random urandom tty; do cp -a /dev/$node "$1/$node"; done
mknod "$1/nvidia0" c 1 7; mknod "$1/nvidia1" c 1 5
mount --rbind "$1" /dev
shift
exec "$@"
"""


@pytest.fixture
def confined() -> Iterator[Path]:
    """A control group that may not open character device 1:5, which stands for the second GPU."""
    root = Path("/sys/fs/cgroup/devices")
    if not (root / "devices.list").exists():
        pytest.skip("no device controller of control groups version 1 here")
    group = root / f"perseus-test-{os.getpid()}"
    group.mkdir()
    (group / "devices.deny").write_text("c 1:5 rwm")
    yield group
    group.rmdir()


def test_a_client_sets_only_gpus_that_are_its_own(node: FakeNvml, tmp_path: Path, confined: Path) -> None:
    path = tmp_path / "guardd.sock"
    on_nodes = ["unshare", "--mount", "sh", "-c", NODES, "sh", str(tmp_path / "dev")]
    program = [sys.executable, str(PROGRAM), str(path), "0", "gpus=own"]
    service = subprocess.Popen([*on_nodes, *program], stdout=subprocess.PIPE)
    try:
        assert service.stdout.readline() == b"ready\n"
        assert answers(path, confined) == ["taken", "refused"]
        assert answers(path, None) == ["taken", "taken"]
    finally:
        service.terminate()
        service.stdout.close()
        service.wait(30)


def answers(path: Path, group: Path | None) -> list[str]:
    """The answers that a process of a control group gets when it asks for each GPU."""
    code = (
        "import json, socket, sys\n"
        "for uuid in sys.argv[2:]:\n"
        "    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "    sock.connect(sys.argv[1])\n"
        "    wish = {'do': 'take', 'uuid': uuid, 'owner': 'x', 'backend': 'nvml', 'lease_s': 30}\n"
        "    sock.send(json.dumps(wish).encode())\n"
        "    print(json.loads(sock.recv(4096))['is'])\n"
        "    sock.close()\n"
    )
    join = "" if group is None else f"echo $$ > {group}/cgroup.procs; "
    words = [sys.executable, "-c", code, str(path), UUID.format(0), UUID.format(1)]
    told = subprocess.run(
        ["sh", "-c", f'{join}exec "$@"', "sh", *words], capture_output=True, text=True, check=True
    )
    time.sleep(0.1)  # until the last lease is free again
    return told.stdout.split()


def test_who_cannot_be_judged_gets_nothing(node: FakeNvml, start: Start) -> None:
    """This machine has no /dev/nvidia0: nobody may open it."""
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is a real GPU here")
    start("gpus=own")
    with pytest.raises(DevicePermissionError, match=r"may not|cannot tell"):
        choose(DeviceRequest("guardd"))
