"""The node's service: who may take which GPU, its socket, what it logs; containers and launchers."""

import io
import json
import logging
import os
import resource
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from unittest.mock import Mock

import pytest

from perseus_ds.errors import ConfigError, DevicePermissionError, DeviceUnavailableError
from perseus_ds.guard.connection import launcher_name, launchers_above
from perseus_ds.guard.containment import in_nodes_pid_namespace, why_unguarded
from perseus_ds.guard.log import log_event
from perseus_ds.guard.policy import Peer, Policy, control_groups
from perseus_ds.guard.protocol import KIND
from perseus_ds.guard.rules import rule_of
from perseus_ds.guard.service import ServiceLog, listen, notify, peer_of

# The service's socket: whose it is, and whose file is never removed for it.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "guardd.sock"


def test_it_is_ours_and_its_groups_and_nobody_elses_and_knows_who_connects(path: Path) -> None:
    with listen(path, str(os.getgid())) as listener, socket.socket(socket.AF_UNIX, KIND) as client:
        found = path.lstat()
        assert stat.S_IMODE(found.st_mode) == 0o660
        assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())
        client.connect(str(path))
        sock, _ = listener.accept()
        peer, pidfd = peer_of(sock)
        os.close(pidfd)
        sock.close()
        groups = control_groups(os.getpid())
        assert (peer.pid, peer.uid) == (os.getpid(), os.getuid())
        assert (peer.cgroup, peer.devices) == (groups.get("", ""), groups.get("devices", ""))
    assert not path.exists()
    with pytest.raises(ConfigError, match="no-such-group"), listen(path, "no-such-group"):
        pass
    assert not path.exists()


def test_many_clients_end_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the numbers of their descriptors, nor when none is left for a sign of life."""
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/nobody")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, before[1]))
    held = [os.dup(0) for _ in range(1100)]
    try:
        with (ends := socket.socketpair(socket.AF_UNIX, KIND))[0], ends[1]:
            held.append(peer_of(ends[0])[1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
        notify("WATCHDOG=1")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in held:
            os.close(descriptor)


@pytest.mark.parametrize("end", ["\r", "\x0c", "\x85", "\u2028"])
def test_nobody_names_a_control_group_so_that_it_is_taken_for_another(end: str, tmp_path: Path) -> None:
    text = f"1:devices:/user{end}1:devices:/kubepods\n0::/user{end}0::/kubepods{end}bad\n"
    (tmp_path / "cgroup").write_bytes(text.encode())
    known = {"devices": f"/user{end}1:devices:/kubepods", "": f"/user{end}0::/kubepods{end}bad"}
    assert control_groups(f"../{tmp_path}") == known


def test_a_second_service_is_refused_and_that_of_one_that_is_gone_taken_over(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX, KIND) as dead:
        dead.bind(str(path))
    with listen(path, None), socket.socket(socket.AF_UNIX, KIND) as client:
        with pytest.raises(DeviceUnavailableError, match="another guardd"), listen(path, None):
            pass
        client.connect(str(path))


def test_what_is_no_socket_is_left_alone_at_both_ends(path: Path) -> None:
    with listen(path, None):
        path.unlink()
        path.write_text("precious")
    with pytest.raises(DevicePermissionError, match="no socket"), listen(path, None):
        pass
    assert path.read_text() == "precious"


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
    words = {"level": "info", "event": "lease_taken", "message": "two?lines"}
    assert first == words | {"gpu": "GPU-1", "owner": 'a "job"'}
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


def test_words_are_for_a_person_and_without_a_service_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_on(as_json=False):
        log_event("lease_taken", "GPU-1 is taken", gpu="GPU-1")
    assert capsys.readouterr().err == "perseus_ds guard: GPU-1 is taken\n"
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


# Who may take which GPU, and how low its clock may go.

ALICE = Peer(pid=10, uid=1000, cgroup="/kubepods/pod1")


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ("gpus=*", True),
        ("user=1000 gpus=*", True),
        ("user=1001 gpus=*", False),
        ("gpus=GPU-1,GPU-2", True),
        ("gpus=GPU-2", False),
        ("cgroup=/kubepods gpus=*", True),
        ("cgroup=/kubepods/pod1 gpus=*", True),
        ("cgroup=/kubepods/pod gpus=*", False),
        ("user=1000 cgroup=/other gpus=*", False),
        ("gpus=own", False),
    ],
)
def test_a_rule_allows_what_it_says(rule: str, *, allowed: bool) -> None:
    policy = Policy((rule_of(rule),))
    if allowed:
        policy.check(ALICE, "GPU-1")
    else:
        with pytest.raises(DevicePermissionError, match="control GPU-1"):
            policy.check(ALICE, "GPU-1")


def test_own_gpus_are_those_that_the_peer_may_open_and_without_rules_nobody_may() -> None:
    policy = Policy((rule_of("user=1000 gpus=own"),))
    policy.check(ALICE, "GPU-1", owns=lambda: True)
    with pytest.raises(DevicePermissionError):
        policy.check(ALICE, "GPU-2", owns=lambda: False)
    with pytest.raises(DevicePermissionError):
        Policy().check(ALICE, "GPU-1")


def test_who_is_no_rules_business_is_known_before_it_says_a_word() -> None:
    policy = Policy((rule_of("user=1001 gpus=*"), rule_of("cgroup=/other gpus=own")))
    with pytest.raises(DevicePermissionError, match="any GPU"):
        policy.check_connection(ALICE)
    policy.check_connection(Peer(pid=10, uid=1001))
    policy.check_connection(Peer(pid=10, uid=7, cgroup="/other/pod"))


@pytest.mark.parametrize(("asked_mhz", "set_mhz"), [(1200, 1200), (900, 900), (210, 900)])
def test_below_the_floor_the_lowest_allowed_clock_is_set(asked_mhz: int, set_mhz: int) -> None:
    assert Policy(floor_mhz=890).clamped_mhz(asked_mhz, (1410, 1200, 900, 210)) == set_mhz
    assert Policy(floor_mhz=2000).clamped_mhz(asked_mhz, (1410, 1200, 900, 210)) == 1410


@pytest.mark.parametrize(
    "text", ["", "user=1000", "gpus", "gpus=", "gpu=*", "gpus=* gpus=*", "user=no-such-user-here gpus=*"]
)
def test_a_rule_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="allow: "):
        rule_of(text)


# Containers and launchers, as a guard finds them.


def test_a_guard_outlives_its_job_in_the_nodes_namespace_or_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path("pid:[4026531836]"), Path("pid:[4026532777]")
    for namespace, of_node in ((own[0], True), (own[1], False), (FileNotFoundError, False)):
        monkeypatch.setattr(Path, "readlink", Mock(side_effect=repeat(namespace)))
        assert in_nodes_pid_namespace() is of_node
        for folder, safe in (("/run/perseus_ds", True), ("", of_node)):
            monkeypatch.setenv("PERSEUS_GUARD_DIR", folder)
            assert (why_unguarded() is None) is safe
        monkeypatch.delenv("PERSEUS_GUARD_DIR")
        assert (why_unguarded() is None) is of_node


# Which processes are launchers that stay until their ranks have ended.


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("python -u -m deepspeed.launcher.launch --world_info=e30= train.py", "deepspeed.launcher.launch"),
        ("/venv/bin/python3.11 /venv/bin/deepspeed --num_gpus 4 train.py -m small", "deepspeed"),
        ("deepspeed --hostfile hosts train.py", "deepspeed"),
        ("/usr/bin/python3 /usr/bin/torchrun --nproc-per-node 8 train.py", "torchrun"),
        ("python -m torch.distributed.run --nproc-per-node 8 train.py", "torch.distributed.run"),
        ("/venv/bin/python /venv/bin/perseus-ds run -- deepspeed train.py", "perseus-ds"),
        ("python -m perseus_ds run -- deepspeed train.py", "perseus_ds"),
        *((line, None) for line in ("bash -c deepspeed train.py", "-bash", "sshd: alice@pts/0", "")),
        *((line, None) for line in ("slurmstepd: [1234.0]", "/usr/bin/python3 train.py --launcher torchrun")),
        *((line, None) for line in ("python -m torch.utils.data train.py", "python -m")),
    ],
)
def test_a_launcher_is_known_by_its_command_line(line: str, name: str | None) -> None:
    assert launcher_name(line.split()) == name


def test_nothing_is_found_above_a_process_that_is_not_seen_or_whose_parent_is_no_launcher() -> None:
    for pid in (0, 2**22 + 1, os.getpid()):
        assert launchers_above(pid) == {}
