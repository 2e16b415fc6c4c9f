"""``perseus-ds guardd`` as operators, systemd and Kubernetes start it; clients that are many, or silent."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import UUID, FakeNvml
from processes import Daemon, Start, allowing, ask, control_group, eventually, let_others_pass, lock, serving

from perseus_ds.cli.main import parse
from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.errors import DevicePermissionError, DeviceUnavailableError
from perseus_ds.guard.client import DEFAULT_SOCKET
from perseus_ds.guard.journal import guard_path
from perseus_ds.guard.open import choose
from perseus_ds.guard.rules import read_rules

pytestmark = pytest.mark.e2e

UNITS = Path(__file__).parents[3] / "scripts" / "guardd"
ALL = 'allow = ["gpus=*"]'
NOBODY = "user=nobody-of-that-name gpus=*"

Run = Callable[..., contextlib.AbstractContextManager[Daemon]]


@pytest.fixture
def rules_file(tmp_path: Path) -> Path:
    return tmp_path / "guardd.toml"


@pytest.fixture
def run(node: FakeNvml, tmp_path: Path, rules_file: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PERSEUS_GUARDD_SOCKET", str(tmp_path / "guardd.sock"))

    @contextlib.contextmanager
    def running(*words: str, rules: str | None = None, **how: Any) -> Iterator[Daemon]:  # noqa: ANN401
        if rules is not None:
            rules_file.write_text(rules)
            words = ("--rules", str(rules_file), *words)
        service = serving(tmp_path / "guardd.sock", *words, **how)
        try:
            yield service
        finally:
            service.end()

    return running


def command(*words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "perseus_ds", *words]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def test_a_client_takes_a_lease_and_sigterm_gives_the_clock_back(node: FakeNvml, run: Run) -> None:
    clocks = ("--floor-mhz", "600", "--restore-clock-mhz", "1200")
    with run(*clocks, *allowing()) as service:
        assert service.path.stat().st_mode & 0o777 == 0o660
        choice = choose(DeviceRequest("automatic", uuid=UUID.format(1)))
        assert choice.backend == "guardd"
        assert choice.gpu.capabilities().clocks_mhz[-1] == 600
        choice.gpu.lock_clock(900)
        assert eventually(lambda: node.locked_mhz() == [0, 900])
        assert service.end(signal.SIGTERM) == 0
        assert node.locked_mhz() == [0, 1200], "as its operator states"
        assert not service.path.exists()
        choice.gpu.close()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_one_capability_is_enough(node: FakeNvml, run: Run) -> None:
    """Start it like the unit and the DaemonSet: nothing but CAP_SYS_ADMIN, and the socket's group its own."""
    rights = ("--bounding-set=-all,+sys_admin", "--inh-caps=-all", "--no-new-privs", "--groups=1000")
    with run("--group", "1000", *allowing(), before=("setpriv", *rights)) as service:
        assert service.path.stat().st_gid == 1000
        caps = Path(f"/proc/{service.process.pid}/status").read_text()
        assert f"CapEff:\t{1 << 21:016x}" in caps
        with choose(DeviceRequest("guardd")).gpu as gpu:
            gpu.lock_clock(900)
            assert eventually(lambda: node.locked_mhz() == [900, 0])
        assert eventually(lambda: node.locked_mhz() == [0, 0])
        assert service.end(signal.SIGTERM) == 0


def refusals() -> dict[str, str]:
    """The refusal of every backend, as doctor finds them."""
    found = json.loads(command("doctor", "--json").stdout)
    return {one["name"]: one["refusal"] for one in found["backends"]}


def test_doctor_says_why_the_service_would_refuse(node: FakeNvml, run: Run) -> None:
    with run(*allowing(f"gpus={UUID.format(1)}")):
        found = refusals()
        assert UUID.format(0) in found["guardd"]
        assert UUID.format(1) not in found["guardd"]
        assert found["nvml"] == ""
    with run(*allowing("user=12345 gpus=*")):
        assert "any GPU" in refusals()["guardd"]
    with run(*allowing()):
        assert refusals()["guardd"] == ""
    assert [node.state.gpu[index].sets + node.state.gpu[index].resets for index in range(2)] == [0, 0]


# Rules of a file, which are read anew under leases.


def test_rules_are_read_anew_and_leases_go_on(node: FakeNvml, run: Run, rules_file: Path) -> None:
    with run(rules=f'allow = ["gpus={UUID.format(0)}"]') as service:
        held, answer = service.take(0)
        with held:
            assert answer["is"] == "taken"
            assert answer["version"]
            lock(held, 900)
            with service.take(1)[0] as refused:
                asked = ask(refused, do="may", uuid=UUID.format(1), backend="nvml")
                assert "may not" in str(asked["message"])
            rules_file.write_text(f'floor_mhz = 600\nallow = ["gpus={UUID.format(1)}"]')
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
def test_rules_that_are_none_leave_those_in_force(run: Run, rules_file: Path, rules: str, why: str) -> None:
    """A start with them is refused: an object on a line, where lines are."""
    with run(rules=ALL) as service:
        rules_file.write_text(rules)
        service.process.send_signal(signal.SIGHUP)
        assert service.says("in force")
        assert why in service.log.read_text()
        with service.take(0)[0] as sock:
            assert ask(sock, do="sync")["is"] == "synced"
    refused = Daemon(service.path, "--rules", str(rules_file), "--log", "json")
    assert refused.process.wait(60) == 1
    entry = json.loads(refused.log.read_text())
    assert (entry["event"], entry["level"]) == ("not_started", "error")
    assert why in entry["message"]


def status(path: Path) -> dict[str, object]:
    return dict(json.loads(command("guardd", "status", "--socket", str(path), "--json").stdout))


def test_a_rule_for_nobody_is_skipped_and_said(run: Run) -> None:
    with run(rules=f'allow = ["{NOBODY}", "gpus=*"]') as service:
        assert "nobody-of-that-name" in service.log.read_text()
        with service.take(0)[0] as sock:
            assert ask(sock, do="sync")["is"] == "synced"
        assert dict(status(service.path)["service"])["rules"] == 1


# What is held and what was left, and what restarts make of it.


def test_status_says_who_holds_what_and_what_was_left_until_the_next_start(node: FakeNvml, run: Run) -> None:
    with run(rules=f"floor_mhz = 510\n{ALL}") as service:
        with service.take(1)[0] as sock:
            lock(sock, 900)
            told = dict(status(service.path)["service"])
            [lease] = told["leases"]
            assert (lease["uuid"], lease["clock_mhz"], lease["uid"]) == (UUID.format(1), 900, os.geteuid())
            assert (lease["pid"], lease["owner"], told["floor_mhz"]) == (os.getpid(), "a job", 510)
            shown = command("guardd", "status", "--socket", str(service.path))
            assert f"{UUID.format(1)}  900 MHz" in shown.stdout
            service.end(signal.SIGKILL)
        left = status(service.path)
        assert left["service"] is None
        assert [one["uuid"] for one in left["left_behind"]] == [UUID.format(1)]
        assert node.locked_mhz() == [0, 900]
    with run():
        assert node.locked_mhz() == [0, 0]


# Under systemd.


def test_under_systemd_every_line_is_an_object(node: FakeNvml, run: Run, tmp_path: Path) -> None:
    (tmp_path / "guardd.log").touch()
    stream = (tmp_path / "guardd.log").stat()
    journal = {"JOURNAL_STREAM": f"{stream.st_dev}:{stream.st_ino}"}
    with run(rules=f'allow = ["{NOBODY}", "gpus={UUID.format(0)}"]', **journal) as service:
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


@pytest.mark.parametrize("is_abstract", [False, True])
def test_the_service_manager_is_told(run: Run, tmp_path: Path, *, is_abstract: bool) -> None:
    named = f"@{tmp_path.name}-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(named.replace("@", "\0", 1))
        manager.settimeout(60)

        def hears(words: bytes) -> None:
            while not (said := manager.recv(100)).startswith(words):
                assert said == b"WATCHDOG=1"

        with run(rules=ALL, NOTIFY_SOCKET=named, WATCHDOG_USEC="100000") as service:
            assert manager.recv(100) == b"READY=1"
            assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            service.process.send_signal(signal.SIGHUP)
            hears(b"RELOADING=1\nMONOTONIC_USEC=")
            hears(b"READY=1")
            service.process.terminate()
            hears(b"STOPPING=1")


def settings(name: str) -> list[str]:
    text = (UNITS / "perseus-guardd.service").read_text()
    return [word for line in re.findall(rf"^{name}=(.*)$", text, re.MULTILINE) for word in shlex.split(line)]


def started_by_kubernetes() -> list[str]:
    line = re.search(r"command: \[perseus-ds, (guardd.*)\]", (UNITS / "kubernetes.yaml").read_text())
    return [word.strip().strip('"') for word in line[1].split(",")]


@pytest.mark.parametrize("words", [settings("ExecStart")[1:], started_by_kubernetes()])
def test_the_examples_start_a_command_that_exists(words: list[str]) -> None:
    _, options = parse(words)
    policy = read_rules(UNITS / options.rules.name)[0] if options.rules else None
    assert (policy.floor_mhz if policy else options.floor_mhz) == 600
    assert len(policy.rules if policy else options.allow) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="the service's folders are root's")
def test_the_unit_lets_the_service_write_its_own_folders_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERSEUS_GUARD_DIR", raising=False)
    own = {str(folder) for folder in (guard_path(), DEFAULT_SOCKET.parent)}
    assert {f"/run/{name}" for name in settings("RuntimeDirectory")} == own
    assert settings("ReadWritePaths") == ["/sys/fs/cgroup"]
    assert settings("RuntimeDirectoryPreserve") == ["yes"], "journals outlive the service"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_finds_little_to_say_of_the_unit() -> None:
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager"]
    unit = str(UNITS / "perseus-guardd.service")
    told = subprocess.run([*words, unit], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout.splitlines()[-1]


# Leases, and clients that are many, or silent.


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_service_that_is_asked_to_end_restores_all(
    node: FakeNvml, start: Start, number: signal.Signals
) -> None:
    daemon = start()
    with daemon.take(0)[0] as first, daemon.take(1)[0] as second:
        for sock in (first, second):
            lock(sock, 900)
        assert node.locked_mhz() == [900, 900]
        daemon.end(number)
        assert node.locked_mhz() == [0, 0]


GPUS, CALL_S = 8, 4.0


def test_a_driver_that_hangs_for_one_gpu_holds_up_no_other_lease(node: FakeNvml, start: Start) -> None:
    eight = FakeNvml(node.path, gpus=GPUS)
    eight.state.apart = 1
    daemon = start()
    with contextlib.ExitStack() as leases:
        first, *others = [leases.enter_context(daemon.take(index)[0]) for index in range(GPUS)]
        eight.state.gpu[0].call_us = int(CALL_S * 1e6)
        first.send(b'{"do":"lock","number":1,"clock_mhz":900}')
        time.sleep(0.1)  # until the service is in the driver's call
        for sock in others:
            lock(sock, 705)
        assert eight.locked_mhz() == [0] + [705] * (GPUS - 1)  # the first call still lasts
        for sock in others:
            sock.close()
        assert eventually(lambda: not any(eight.locked_mhz()))
        assert eight.state.gpu[0].sets == 0
        assert eventually(lambda: eight.locked_mhz()[0] == 900)
        eight.state.gpu[0].call_us = 0
    daemon.end()
    assert not any(eight.locked_mhz())


# Nobody but its holder ends a lease or starves the service.

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


@as_root
def test_connects_of_a_user_on_no_rule_cost_the_holder_nothing(node: FakeNvml, start: Start) -> None:
    daemon = start("user=0 gpus=*")
    daemon.path.chmod(0o666)  # it is the service that keeps others out, not the socket
    let_others_pass(daemon.path.parent)
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


def test_two_hundred_clients_and_half_open_connections_harm_no_lease(node: FakeNvml, start: Start) -> None:
    daemon = start()
    descriptors = Path(f"/proc/{daemon.process.pid}/fd")
    holder, _ = daemon.take()
    before = len(list(descriptors.iterdir()))
    with contextlib.ExitStack() as stack:
        stack.enter_context(holder)
        crowd = [stack.enter_context(daemon.connect()) for _ in range(200)]
        for sock in crowd[::2]:
            assert ask(sock, do="lock", number=1, clock_mhz=210)["is"] == "refused"
        for sock in crowd[::3]:
            sock.shutdown(socket.SHUT_WR)
        lock(holder, 900)
        assert node.locked_mhz() == [900, 0]
    assert eventually(lambda: len(list(descriptors.iterdir())) < before), "nothing of a client stays"


@as_root
def test_a_thread_that_cannot_be_had_is_that_clients_refusal(node: FakeNvml, start: Start) -> None:
    daemon = start()
    holder, _ = daemon.take()
    with holder, contextlib.ExitStack() as stack:
        lock(holder, 900)
        with control_group("pids") as group:
            (group / "cgroup.procs").write_text(str(daemon.process.pid))
            (group / "pids.max").write_text(str(int((group / "pids.current").read_text()) + 3))
            crowd = [stack.enter_context(daemon.connect()) for _ in range(40)]
            told = [json.loads(sock.recv(4096)) for sock in crowd[3:]]
            assert all("cannot serve" in one["message"] for one in told)
            holder.send(b'{"do":"lock","number":2,"clock_mhz":705}')
            assert ask(holder, do="sync")["is"] == "synced"
            (group.parent / "cgroup.procs").write_text(str(daemon.process.pid))
        assert daemon.process.poll() is None
        assert node.locked_mhz() == [705, 0]
        assert daemon.gives(1)


def test_one_user_does_not_take_all_connections(start: Start) -> None:
    daemon = start()
    with contextlib.ExitStack() as stack:
        for _ in range(256):
            stack.enter_context(daemon.connect())
        extra = stack.enter_context(daemon.connect())
        assert "too many" in json.loads(extra.recv(4096))["message"]


FORKS = """
import os, socket, sys, time
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(sys.argv[1])
sock.send(b'{"do":"take","uuid":"%s","owner":"x","backend":"nvml","lease_s":600}' % sys.argv[2].encode())
sock.recv(4096)
sock.send(b'{"do":"lock","number":1,"clock_mhz":900}')
os.fork()
time.sleep(60)
"""


def test_a_lease_ends_with_its_taker_whoever_has_its_descriptor(node: FakeNvml, start: Start) -> None:
    words = [sys.executable, "-c", FORKS, str(start().path), UUID.format(0)]
    client = subprocess.Popen(words, start_new_session=True)
    try:
        assert eventually(lambda: node.locked_mhz() == [900, 0])
        client.kill()
        assert eventually(lambda: node.locked_mhz() == [0, 0])
    finally:
        os.killpg(client.pid, signal.SIGKILL)
        client.wait()


def test_the_backend_is_the_services_choice_and_an_owner_printable(start: Start) -> None:
    with start().connect() as sock:
        answer = ask(sock, do="take", uuid=UUID.format(0), owner="x\n\x1b[2J", backend="amdsmi", lease_s=30)
        assert answer["is"] == "taken"
        with pytest.raises(DeviceUnavailableError, match=r"held by.*process \d+") as caught:
            choose(DeviceRequest("guardd"))
        assert str(caught.value).isprintable()


def test_who_cannot_be_judged_gets_nothing(node: FakeNvml, start: Start) -> None:
    """This machine has no /dev/nvidia0: nobody may open it."""
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is a real GPU here")
    start("gpus=own")
    with pytest.raises(DevicePermissionError, match=r"may not|cannot tell"):
        choose(DeviceRequest("guardd"))
