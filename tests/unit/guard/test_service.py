"""The node's service: who is let in and what stays, its socket, and what it logs."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lone_job import UUID, DeskGpu

from perseus_ds.errors import ConfigError, DevicePermissionError, DeviceUnavailableError
from perseus_ds.guard.claim import OwnershipLock
from perseus_ds.guard.client import GuardClient
from perseus_ds.guard.log import log_event
from perseus_ds.guard.policy import ALLOW_ALL, Policy, Rule
from perseus_ds.guard.protocol import KIND, MAX_BYTES
from perseus_ds.guard.service import Listener, Service, ServiceLog, is_journal

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

        service = Service(self.path, policy, open_gpu=lambda *_: DeskGpu(before=note))
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


# The service's socket: whose it is, and whose file is never removed for it.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "guardd.sock"


def test_it_is_ours_and_its_groups_and_nobody_elses(path: Path) -> None:
    listener = Listener(path, str(os.getgid()))
    found = path.lstat()
    assert stat.S_IMODE(found.st_mode) == 0o660
    assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())
    with socket.socket(socket.AF_UNIX, KIND) as client:
        client.connect(str(path))
    listener.close()
    assert not path.exists()


def test_a_second_service_is_refused_and_the_first_goes_on(path: Path) -> None:
    first = Listener(path, None)
    with pytest.raises(DeviceUnavailableError, match="another guardd"):
        Listener(path, None)
    with socket.socket(socket.AF_UNIX, KIND) as client:
        client.connect(str(path))
    first.close()


def test_the_socket_of_a_service_that_is_gone_is_taken_over(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX, KIND) as dead:
        dead.bind(str(path))
    Listener(path, None).close()


def test_what_is_no_socket_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("precious")
    with pytest.raises(DevicePermissionError, match="no socket"):
        Listener(path, None)
    assert path.read_text() == "precious"


def test_a_socket_that_somebody_put_in_its_place_is_not_removed(path: Path) -> None:
    listener = Listener(path, None)
    path.unlink()
    path.write_text("another's")
    listener.close()
    assert path.exists()


def test_a_group_that_is_not_there_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-group"):
        Listener(path, "no-such-group")
    assert not path.exists()


# What the service logs: whole lines, bounded, and never waited for.


@contextmanager
def logging_on(*, as_json: bool = True) -> Iterator[ServiceLog]:
    log = ServiceLog(as_json=as_json)
    yield log
    log.close()


def test_an_event_is_one_object_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_on():
        log_event("lease_taken", "two\nlines", gpu="GPU-1", owner='a "job"', clock_mhz=None)
        log_event("conflict", "another tool", logging.WARNING, kind="foreign_lock")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "info",
        "event": "lease_taken",
        "message": "two?lines",
        "gpu": "GPU-1",
        "owner": 'a "job"',
    }
    assert (second["level"], second["kind"]) == ("warning", "foreign_lock")


def test_a_flood_of_one_user_is_counted_and_hides_nobody_else(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_on():
        for _ in range(5000):
            log_event("lease_refused", "no rule", uid=7)
        log_event("lease_taken", "a lease", uid=8)
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert len(entries) < 100
    assert entries[-1]["event"] == "lease_taken"
    assert len(entries) - 1 + entries[-1]["left_out"] == 5000


def test_words_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_on(as_json=False):
        log_event("lease_taken", "GPU-1 is taken", gpu="GPU-1")
    assert capsys.readouterr().err == "perseus_ds guard: GPU-1 is taken\n"


def test_without_a_service_errors_alone_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    log_event("lease_taken", "GPU-1 is taken")
    log_event("lease_ended", "its clock may stay locked", logging.ERROR)
    assert capsys.readouterr().err == "perseus_ds guard: its clock may stay locked\n"


class FullPipe(io.StringIO):
    """A log that takes nothing until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()

    def write(self, text: str) -> int:
        self.let.wait(60.0)
        return super().write(text)


def test_a_log_that_hangs_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = FullPipe()
    monkeypatch.setattr(sys, "stderr", pipe)
    with logging_on():
        for number in range(3000):  # more than may wait; would never return
            log_event(f"event {number}", "")
        pipe.let.set()
    numbers = [int(json.loads(line)["event"].split()[1]) for line in pipe.getvalue().splitlines()]
    assert numbers == sorted(numbers)
    assert 1000 < len(numbers) < 3000


def test_systemd_s_journal_is_known_by_its_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.fstat(2)
    assert not is_journal()
    monkeypatch.setenv("JOURNAL_STREAM", f"{here.st_dev}:{here.st_ino}")
    assert is_journal()
    other = (tmp_path / "other").open("w")
    with other:
        there = os.fstat(other.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{there.st_dev}:{there.st_ino}")
        assert not is_journal()
