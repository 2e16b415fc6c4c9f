"""The node's service in a process of its own, with a GPU on the desk: who is let in, what stays."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lone_job import UUID, DeskGpu

from perseus_ds.errors import DevicePermissionError, DeviceUnavailableError
from perseus_ds.guard.claim import OwnershipLock
from perseus_ds.guard.client import GuardClient
from perseus_ds.guard.policy import ALLOW_ALL, Policy, Rule
from perseus_ds.guard.protocol import KIND, MAX_BYTES
from perseus_ds.guard.service import Service, ServiceSettings

LONG_S = 30.0


def wait_for(done: Callable[[], bool]) -> None:
    until_s = time.monotonic() + LONG_S
    while not done():
        assert time.monotonic() < until_s
        time.sleep(0.005)


def is_free() -> bool:
    """Whether nobody holds the GPU any more, which is the last thing that a guard does for it."""
    try:
        OwnershipLock(UUID, "the next").release()
    except DeviceUnavailableError:
        return False
    return True


class Node:
    """A service that was forked off; ``calls`` is what its GPU was asked."""

    def __init__(self, folder: Path, policy: Policy) -> None:
        self.path, self._calls = folder / "guardd.sock", folder / "calls"
        self._calls.touch()
        self.pid = os.fork()
        if not self.pid:
            os._exit(self._serve(policy))
        wait_for(self._listens)

    def _serve(self, policy: Policy) -> int:
        def note(clock_mhz: int | None) -> None:
            with self._calls.open("a") as file:
                file.write(f"{clock_mhz}\n")

        service = Service(ServiceSettings(self.path, policy=policy), open_gpu=lambda *_: DeskGpu(before=note))
        service.start()
        return service.run()

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX, KIND) as probe:
            return probe.connect_ex(str(self.path)) == 0

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, KIND)
        sock.settimeout(LONG_S)
        sock.connect(str(self.path))
        return sock

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().split()

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def ends(self) -> int:
        """Ask it to end, twice as an impatient operator does, and return its exit code."""
        os.kill(self.pid, signal.SIGTERM)
        os.kill(self.pid, signal.SIGTERM)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Policy], Node]]:
    monkeypatch.setenv("PERSEUS_GUARD_DIR", str(tmp_path / "guard"))
    nodes: list[Node] = []

    def start(policy: Policy) -> Node:
        nodes.append(Node(tmp_path, policy))
        return nodes[-1]

    yield start
    for node in nodes:
        try:
            os.kill(node.pid, signal.SIGKILL)
            os.waitpid(node.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue


def test_a_job_sets_clocks_and_the_services_end_puts_them_back(serve: Callable[[Policy], Node]) -> None:
    node = serve(ALLOW_ALL)
    client = GuardClient(node.connect())
    client.take(UUID, "job")
    client.request(900)
    client.sync(LONG_S)
    assert node.calls == ["900"]
    assert node.ends() == 0
    assert node.calls == ["900", "None"]
    assert not node.path.exists()
    client.close()


def test_a_client_that_goes_is_put_right_and_the_service_goes_on(serve: Callable[[Policy], Node]) -> None:
    node = serve(ALLOW_ALL)
    left_open = []
    for clock_mhz in (900, 705, 900, 705):
        client = GuardClient(node.connect())
        client.take(UUID, "job")
        client.request(clock_mhz)
        client.sync(LONG_S)
        client.close()
        wait_for(is_free)
        left_open.append(node.descriptors())
    assert node.calls == ["900", "None", "705", "None"] * 2
    assert min(left_open[2:]) <= max(left_open[:2]), "nothing of a client stays"
    assert node.ends() == 0


def test_who_no_rule_speaks_of_is_told_so_and_nothing_of_them_stays(serve: Callable[[Policy], Node]) -> None:
    node = serve(Policy((Rule(uid=os.getuid() + 1),)))

    def refused() -> str:
        with node.connect() as sock:
            return str(json.loads(sock.recv(MAX_BYTES))["message"])

    assert f"process {os.getpid()}" in refused()
    before = node.descriptors()
    for _ in range(20):
        refused()
    assert node.descriptors() <= before + 2, "at most the last one is on its way"
    assert node.ends() == 0


def test_a_gpu_that_is_not_allowed_is_refused(serve: Callable[[Policy], Node]) -> None:
    node = serve(Policy((Rule(frozenset({"GPU-1"})),)))
    with node.connect() as sock, pytest.raises(DevicePermissionError, match=f"control {UUID}"):
        GuardClient(sock).take(UUID, "job")
    assert node.calls == []
    assert node.ends() == 0
