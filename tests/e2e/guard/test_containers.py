"""A guard in a container dies with it: what is done instead, with real PID namespaces."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from containers import Container, missing
from fake_nvml import UUID, FakeNvml
from processes import EVERYTHING, Daemon, eventually, free

from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.guard.repair import repair

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(missing() is not None, reason=missing() or "")]

Start = Callable[..., Container]
WAYS = {
    "the first process is killed": (True, Container.kill_all),
    "the first process ends by itself": (True, None),
    "a rank below a shell is killed": (False, Container.kill_trainer),
    "the container is killed": (False, Container.kill_all),
}


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Container] = []

    def begin(**words: object) -> Container:
        started.append(Container(**words))
        return started[-1]

    yield begin
    for container in started:
        container.end()


@pytest.fixture
def inside(node: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No folder is named: what a container has by itself."""
    monkeypatch.delenv("PERSEUS_GUARD_DIR")
    monkeypatch.setenv("PERSEUS_GUARDD_SOCKET", str(tmp_path / "guardd.sock"))
    yield tmp_path / "guardd.sock"
    for left in Path("/run/perseus_ds").glob(f"{UUID[:13]}*"):
        left.unlink()


def test_without_a_service_or_a_folder_no_clock_is_set_and_it_is_said_why(
    inside: Path, node: FakeNvml, start: Start
) -> None:
    said = start().said
    assert "in a container" in said
    assert "PERSEUS_GUARD_DIR" in said
    assert "allow_unguarded_container: true" in said
    assert node.state.gpu[0].sets == 0


def test_who_takes_the_risk_sets_clocks(inside: Path, node: FakeNvml, start: Start) -> None:
    start(risk=True)
    assert eventually(lambda: not free(node))


@pytest.mark.parametrize(("first", "kill"), WAYS.values(), ids=WAYS)
def test_with_the_service_outside_nothing_is_left(
    inside: Path, node: FakeNvml, start: Start, *, first: bool, kill: Callable[[Container], None] | None
) -> None:
    daemon = Daemon(inside, EVERYTHING)
    try:
        container = start(first=first, how="vanishes" if kill is None else "runs")
        assert eventually(lambda: not free(node) or container.process.poll() is not None)
        if kill is not None:
            kill(container)
        assert eventually(lambda: free(node) and container.process.poll() is not None)
    finally:
        daemon.end()


@pytest.mark.parametrize(("first", "kill"), WAYS.values(), ids=WAYS)
def test_with_a_journal_on_the_node_the_next_start_finds_it(
    node: FakeNvml, start: Start, *, first: bool, kill: Callable[[Container], None] | None
) -> None:
    container = start(first=first, device="nvml", how="vanishes" if kill is None else "runs")
    assert eventually(lambda: not free(node) or container.process.poll() is not None)
    if kill is not None:
        kill(container)
    assert eventually(lambda: container.process.poll() is not None)
    repair()
    assert free(node)


def test_a_lock_left_by_a_container_is_not_taken_for_an_operators(
    inside: Path, node: FakeNvml, start: Start
) -> None:
    with NvmlGpu(DeviceRequest("nvml")) as left:
        left.lock_clock(660)
    container = start(risk=True, how="closes")
    assert eventually(lambda: container.process.poll() is not None)
    assert eventually(lambda: free(node))


def test_doctor_says_it(inside: Path, node: FakeNvml) -> None:
    told = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-m", "perseus_ds", "doctor"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert UUID.format(0) in told.stdout
    assert "in a container" in told.stdout
