"""The service as a service: rules that are read anew under leases, status, restarts, the service manager."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_nvml import UUID, FakeNvml
from processes import EVERYTHING, Daemon, ask, eventually, lock

from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.guard.open import choose
from perseus_ds.guard.protocol import KIND

pytestmark = pytest.mark.e2e

PROGRAM = [sys.executable, "-m", "perseus_ds", "guardd"]
GPUS = 8


class Run:
    """A service that reads its rules from a file, and what it says."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        self.rules, self.path, self.log = (folder / name for name in ("guardd.toml", "guardd.sock", "log"))
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*PROGRAM, "--socket", str(self.path), "--rules", str(self.rules), *words],
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
            )

    def says(self, text: str) -> bool:
        return eventually(lambda: text in self.log.read_text(), 60.0)

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, KIND)
        sock.connect(str(self.path))
        sock.settimeout(20)
        return sock

    def take(self, index: int) -> tuple[socket.socket, dict[str, object]]:
        sock = self.connect()
        uuid = UUID.format(index)
        return sock, ask(sock, do="take", uuid=uuid, owner="a job", backend="nvml", lease_s=30.0)


@contextlib.contextmanager
def running(folder: Path, rules: str, *words: str, **environment: str) -> Iterator[Run]:
    (folder / "guardd.toml").write_text(rules)
    service = Run(folder, *words, **environment)
    try:
        assert service.says("listening on")
        yield service
    finally:
        service.process.terminate()
        service.process.wait(60)


def status(path: Path) -> dict[str, object]:
    words = [*PROGRAM, "status", "--socket", str(path), "--json"]
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    return dict(json.loads(told.stdout))


def test_rules_are_read_anew_and_leases_go_on(node: FakeNvml, tmp_path: Path) -> None:
    with running(tmp_path, f'allow = ["gpus={UUID.format(0)}"]') as service:
        held, answer = service.take(0)
        with held:
            assert answer["is"] == "taken"
            assert answer["version"]
            lock(held, 900)
            with service.take(1)[0] as refused:
                assert "may not" in str(
                    ask(refused, do="may", uuid=UUID.format(1), backend="nvml")["message"]
                )
            service.rules.write_text(f'floor_mhz = 600\nallow = ["gpus={UUID.format(1)}"]')
            service.process.send_signal(signal.SIGHUP)
            assert service.says("1 in")
            other, answer = service.take(1)
            other.close()
            assert (answer["is"], answer["floor_mhz"]) == ("taken", 600)
            assert node.locked_mhz()[0] == 900
            held.send(b'{"do":"lock","number":2,"clock_mhz":1200}')
            assert ask(held, do="sync")["is"] == "synced"
            assert node.locked_mhz()[0] == 1200
    assert node.locked_mhz() == [0, 0]


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("allow = [", "TOML"),
        ('alow = ["gpus=*"]', "alow"),
        ("floor_mhz = -1", "floor_mhz"),
        ('allow = ["gpu=*"]', "gpu=*"),
    ],
)
def test_rules_that_are_none_leave_those_in_force(
    node: FakeNvml, tmp_path: Path, rules: str, why: str
) -> None:
    with running(tmp_path, 'allow = ["gpus=*"]') as service:
        service.rules.write_text(rules)
        service.process.send_signal(signal.SIGHUP)
        assert service.says("in force")
        assert why in service.log.read_text()
        with service.take(0)[0] as sock:
            assert ask(sock, do="sync")["is"] == "synced"
    refused = Run(tmp_path)
    assert refused.process.wait(60) == 1
    assert why in refused.log.read_text()


def test_a_rule_for_nobody_is_skipped_and_said(node: FakeNvml, tmp_path: Path) -> None:
    with running(tmp_path, 'allow = ["user=nobody-of-that-name gpus=*", "gpus=*"]') as service:
        assert "nobody-of-that-name" in service.log.read_text()
        with service.take(0)[0] as sock:
            assert ask(sock, do="sync")["is"] == "synced"
        assert dict(status(service.path)["service"])["rules"] == 1


def test_status_says_who_holds_what_and_what_was_left(node: FakeNvml, tmp_path: Path) -> None:
    with running(tmp_path, 'floor_mhz = 510\nallow = ["gpus=*"]') as service:
        with service.take(1)[0] as sock:
            lock(sock, 900)
            told = status(service.path)
            [lease] = dict(told["service"])["leases"]
            assert (lease["uuid"], lease["clock_mhz"], lease["uid"]) == (UUID.format(1), 900, os.geteuid())
            assert lease["pid"] == os.getpid()
            assert lease["owner"] == "a job"
            assert dict(told["service"])["floor_mhz"] == 510
            words = [*PROGRAM, "status", "--socket", str(service.path)]
            told = subprocess.run(words, capture_output=True, text=True, check=True)
            assert f"{UUID.format(1)}  900 MHz" in told.stdout
            service.process.kill()
            service.process.wait(60)
        left = status(service.path)
        assert left["service"] is None
        assert [one["uuid"] for one in left["left_behind"]] == [UUID.format(1)]


def test_under_systemd_every_line_is_an_object(node: FakeNvml, tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    stream = (tmp_path / "log").stat()
    journal = {"JOURNAL_STREAM": f"{stream.st_dev}:{stream.st_ino}"}
    nobody, own = "user=nobody-of-that-name gpus=*", f"gpus={UUID.format(0)}"
    with running(tmp_path, f'allow = ["{nobody}", "{own}"]', **journal) as service:
        service.take(1)[0].close()
        held, _ = service.take(0)
        lock(held, 900)
        service.process.send_signal(signal.SIGHUP)
        assert service.says("rules_reloaded")
        held.close()
        assert service.says("lease_ended")
    entries = [json.loads(line[3:]) for line in service.log.read_text().splitlines() if line[0] == "<"]
    assert len(entries) == len(service.log.read_text().splitlines())
    said = {entry["event"]: entry for entry in entries}
    assert [*said] == [
        *("rule_skipped", "listening", "lease_refused", "lease_taken", "rules_reloaded", "lease_ended"),
        "stopping",
    ]
    assert (said["lease_refused"]["gpu"], said["lease_refused"]["level"]) == (UUID.format(1), "warning")
    taken, ended = said["lease_taken"], said["lease_ended"]
    who = ("lease", "gpu", "owner", "uid", "pid")
    assert [taken[key] for key in who] == [ended[key] for key in who]
    assert [taken[key] for key in who[1:]] == [UUID.format(0), "a job", os.geteuid(), os.getpid()]
    assert (ended["clock_mhz"], ended["clock_changes"], ended["restored"]) == (900, 1, True)
    assert "hung up" in ended["why"]
    assert node.locked_mhz() == [0, 0]


def test_a_start_that_is_refused_is_an_object_too(tmp_path: Path) -> None:
    (tmp_path / "guardd.toml").write_text("floor_mhz = -1")
    refused = Run(tmp_path, "--log", "json")
    assert refused.process.wait(60) == 1
    entry = json.loads(refused.log.read_text())
    assert (entry["event"], entry["level"]) == ("not_started", "error")
    assert "floor_mhz" in entry["message"]


@pytest.mark.parametrize("is_abstract", [False, True])
def test_the_service_manager_is_told(node: FakeNvml, tmp_path: Path, is_abstract: bool) -> None:  # noqa: FBT001
    named = f"@{tmp_path.name}-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(named.replace("@", "\0", 1))
        manager.settimeout(60)
        told = {"NOTIFY_SOCKET": named, "WATCHDOG_USEC": "100000"}
        with running(tmp_path, 'allow = ["gpus=*"]', **told) as service:
            assert manager.recv(100) == b"READY=1"
            assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            service.process.send_signal(signal.SIGHUP)
            while not (said := manager.recv(100)).startswith(b"RELOADING=1\nMONOTONIC_USEC="):
                assert said == b"WATCHDOG=1"
            while (said := manager.recv(100)) != b"READY=1":
                assert said == b"WATCHDOG=1"
            service.process.terminate()
            while (said := manager.recv(100)) != b"STOPPING=1":
                assert said == b"WATCHDOG=1"


def test_eight_leases_have_their_clocks_back_after_a_restart(
    node: FakeNvml, tmp_path: Path, start: Callable[..., Daemon]
) -> None:
    more = FakeNvml(node.path, gpus=GPUS)
    daemon = start(EVERYTHING)
    with contextlib.ExitStack() as jobs:
        held = [jobs.enter_context(choose(DeviceRequest("guardd", local_rank=n)).gpu) for n in range(GPUS)]
        for gpu in held:
            gpu.lock_clock(900)
        assert eventually(lambda: more.locked_mhz() == [900] * GPUS)
        daemon.end(signal.SIGKILL)
        assert eventually(lambda: not any(gpu.in_control() for gpu in held))
        start(EVERYTHING)
        ready_s = time.monotonic()
        assert eventually(lambda: all(gpu.in_control() for gpu in held), 60.0)
        assert eventually(lambda: more.locked_mhz() == [900] * GPUS, 60.0)
        sys.stdout.write(f"{GPUS} clocks are back {time.monotonic() - ready_s:.2f} s after the service\n")
        assert all(gpu.given_up() is None for gpu in held)
