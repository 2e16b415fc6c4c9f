"""``perseus-ds guardd`` as an operator starts it, and what the unit and the sidecar start."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml import UUID, FakeNvml
from processes import eventually

from perseus_ds.cli.main import parse
from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.guard.client import DEFAULT_SOCKET
from perseus_ds.guard.journal import guard_path
from perseus_ds.guard.open import choose
from perseus_ds.guard.rules import read_rules

pytestmark = pytest.mark.e2e

PROGRAM = [sys.executable, "-m", "perseus_ds", "guardd"]
UNITS = Path(__file__).parents[3] / "scripts" / "guardd"


@pytest.fixture
def path(node: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERSEUS_GUARDD_SOCKET", str(tmp_path / "guardd.sock"))
    return tmp_path / "guardd.sock"


@contextlib.contextmanager
def guardd(path: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([*PROGRAM, "--socket", str(path), *words], stderr=subprocess.PIPE, text=True)
    try:
        assert any(f"listening on {path}\n" in line for line in process.stderr)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_client_takes_a_lease_and_sigterm_gives_the_clock_back(node: FakeNvml, path: Path) -> None:
    clocks = ("--floor-mhz", "600", "--restore-clock-mhz", "1200")
    with guardd(path, *clocks, "--allow", "gpus=*") as service:
        assert path.stat().st_mode & 0o777 == 0o660
        choice = choose(DeviceRequest("automatic", uuid=UUID.format(1)))
        assert choice.backend == "guardd"
        assert choice.gpu.capabilities().clocks_mhz[-1] == 600
        choice.gpu.lock_clock(900)
        assert eventually(lambda: node.locked_mhz() == [0, 900])
        service.send_signal(signal.SIGTERM)
        assert service.wait(30) == 0
        assert node.locked_mhz() == [0, 1200], "as its operator states"
        assert not path.exists()
        choice.gpu.close()


def test_what_a_killed_service_left_is_put_back_and_said(node: FakeNvml, path: Path) -> None:
    with guardd(path, "--allow", f"gpus={UUID.format(0)}") as service:
        gpu = choose(DeviceRequest("guardd")).gpu
        gpu.lock_clock(900)
        assert eventually(lambda: node.locked_mhz() == [900, 0])
        service.kill()
        service.wait(30)
    gpu.close()
    assert node.locked_mhz() == [900, 0]
    with guardd(path):
        assert node.locked_mhz() == [0, 0]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_one_capability_is_enough(node: FakeNvml, path: Path) -> None:
    """Start it like the unit and the DaemonSet: nothing but CAP_SYS_ADMIN, and the socket's group its own."""
    narrow = [
        "setpriv",
        "--bounding-set=-all,+sys_admin",
        "--inh-caps=-all",
        "--no-new-privs",
        "--groups=1000",
    ]
    service = subprocess.Popen(
        [*narrow, *PROGRAM, "--socket", str(path), "--group", "1000", "--allow", "gpus=*"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert f"listening on {path}\n" in service.stderr.readline()
        assert path.stat().st_gid == 1000
        caps = Path(f"/proc/{service.pid}/status").read_text()
        assert f"CapEff:\t{1 << 21:016x}" in caps
        with choose(DeviceRequest("guardd")).gpu as gpu:
            gpu.lock_clock(900)
            assert eventually(lambda: node.locked_mhz() == [900, 0])
        assert eventually(lambda: node.locked_mhz() == [0, 0])
    finally:
        service.terminate()
        assert service.wait(30) == 0
        service.stderr.close()


def answers() -> tuple[str, dict[str, str]]:
    """The backend that automatic takes, and the refusal of every one, as doctor finds them."""
    program = [*PROGRAM[:-1], "doctor", "--json"]
    told = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    found = json.loads(told)
    return found["automatic"]["backend"], {one["name"]: one["refusal"] for one in found["backends"]}


def test_doctor_says_why_the_service_would_refuse(node: FakeNvml, path: Path) -> None:
    with guardd(path, "--allow", f"gpus={UUID.format(1)}"):
        _, found = answers()
        assert UUID.format(0) in found["guardd"]
        assert UUID.format(1) not in found["guardd"]
        assert found["nvml"] == ""
    with guardd(path, "--allow", "user=12345 gpus=*"):
        assert "any GPU" in answers()[1]["guardd"]
    with guardd(path, "--allow", "gpus=*"):
        assert answers()[1]["guardd"] == ""
    assert node.locked_mhz() == [0, 0]
    assert [node.state.gpu[index].sets + node.state.gpu[index].resets for index in range(2)] == [0, 0]


def started_by_systemd() -> list[str]:
    line = re.search(r"^ExecStart=(.*)$", (UNITS / "perseus-guardd.service").read_text(), re.MULTILINE)
    return shlex.split(line[1])[1:]


def started_by_kubernetes() -> list[str]:
    line = re.search(r"command: \[perseus-ds, (guardd.*)\]", (UNITS / "kubernetes.yaml").read_text())
    return [word.strip().strip('"') for word in line[1].split(",")]


@pytest.mark.parametrize("words", [started_by_systemd(), started_by_kubernetes()])
def test_the_examples_start_a_command_that_exists(words: list[str]) -> None:
    _, options = parse(words)
    policy = read_rules(UNITS / options.rules.name)[0] if options.rules else None
    assert (policy.floor_mhz if policy else options.floor_mhz) == 600
    assert len(policy.rules if policy else options.allow) == 1


@pytest.mark.parametrize("rule", ["user=alice", "gpus", "gpu=*", "user=nobody-of-that-name gpus=*"])
def test_a_wrong_rule_is_wrong_usage(rule: str) -> None:
    told = subprocess.run([*PROGRAM, "--allow", rule], capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert "--allow" in told.stderr
    assert "Traceback" not in told.stderr


def settings(name: str) -> list[str]:
    text = (UNITS / "perseus-guardd.service").read_text()
    return [word for line in re.findall(rf"^{name}=(.*)$", text, re.MULTILINE) for word in line.split()]


@pytest.mark.skipif(os.geteuid() != 0, reason="the service's folders are root's")
def test_the_unit_lets_the_service_write_its_own_folders_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
