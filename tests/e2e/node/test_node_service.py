"""A whole job through the node's service, which is restarted or hangs while the job trains."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import FakeNvml, Service, beside, block, lived, node_at, when
from jobs import events, happened, lines, plain_losses
from ranks import Said, config

from perseus_ds.device.gpu import ConflictKind

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

LOST, BACK = ConflictKind.CONTROL_LOST, ConflictKind.CONTROL_BACK


@pytest.fixture
def node(tmp_path: Path) -> FakeNvml:
    return node_at(tmp_path)


@pytest.fixture
def service(node: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("PERSEUS_GUARDD_SOCKET", str(tmp_path / "guardd.sock"))
    service = Service(node, tmp_path / "guardd.sock")
    yield service
    service.end()


def announced(said: list[Said], words: str) -> list[int]:
    return [one.rank for one in said for line in lines(one) if words in line]


def kinds(run_dir: Path) -> list[str]:
    return [event["kind"] for event in events(run_dir) if event["event"] == "conflict"]


def locked(node: FakeNvml) -> bool:
    return any(0 < mhz < 1410 for mhz in node.locked_mhz())


def test_a_restarted_service_costs_a_plan_a_few_iterations(
    node: FakeNvml, service: Service, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"

    def restart() -> None:
        service.end(signal.SIGKILL)
        time.sleep(2.0)
        service.start()

    measured: list[int] = []

    def over(run_dir: Path) -> bool:
        """The plan's clocks are there again, and both sides were measured once more."""
        done = sum(event["event"] == "measured" for event in events(run_dir))
        if kinds(run_dir).count("control_back") < 4:
            return False
        measured.append(done)
        return done > measured[0] and locked(node)

    with beside(when(lambda: happened("measured")(run_dir) and locked(node), restart)):
        said = lived(node, config(gradient_clipping=1.0, perseus=block(run_dir, device="guardd")), over)
    assert announced(said, LOST.text) == announced(said, BACK.text) == [0]
    assert announced(said, "off, training") == []
    assert [one.value.left_after for one in said] == [None] * 4
    losses = [one.value.losses for one in said]
    assert losses == plain_losses(len(losses[0]))
    assert node.locked_mhz() == [0, 0, 0, 0]


def test_a_window_of_a_profile_in_which_it_was_gone_is_measured_again(
    node: FakeNvml, service: Service, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"

    def said_so_far() -> str:
        journal = run_dir / "events.jsonl"
        return journal.read_text() if journal.exists() else ""

    def restart_until_it_is_noticed(over: threading.Event) -> None:
        """Between two windows nobody is harmed: then once more."""
        while not over.wait(0.1) and "window_too_short" not in said_so_far():
            if '"profiling"' in said_so_far() and any(node.locked_mhz()):
                service.end()
                service.start()

    with beside(restart_until_it_is_noticed):
        said = lived(
            node, config(perseus=block(run_dir, device="guardd", mode="profile")), happened("profiled")
        )
    assert announced(said, "off, training") == []
    assert 0 in announced(said, "once more")
    assert (run_dir / "profile.json").exists()


def test_a_guard_that_hangs_is_the_end_of_control_and_not_of_training(node: FakeNvml, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    stopped: list[int] = []

    def stop() -> None:
        stopped.append(next(pid for pid, words in node.processes().items() if "perseus_ds.guard" in words))
        os.kill(stopped[0], signal.SIGSTOP)

    with beside(when(lambda: happened("measured")(run_dir) and locked(node), stop)):
        said = lived(
            node,
            config(gradient_clipping=1.0, perseus=block(run_dir)),
            lambda run_dir: bool(happened("disabled")(run_dir)) and not any(node.locked_mhz()),
        )
    [rank] = announced(said, "off, training goes on at default clocks: the guard hangs")
    assert rank in range(4)
    assert all(one.value.left_after is not None for one in said)
    losses = [one.value.losses for one in said]
    assert losses == plain_losses(len(losses[0]))
    assert node.locked_mhz() == [0, 0, 0, 0]
