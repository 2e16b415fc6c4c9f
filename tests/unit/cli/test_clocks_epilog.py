"""``perseus-ds clocks reset`` as a scheduler's epilog: its exit code says whether the node is fit."""

from pathlib import Path

import fake_nvml
import pytest
from cli_program import Program

from perseus_ds.guard import journal
from perseus_ds.guard.claim import OwnershipLock
from perseus_ds.guard.journal import Journal

TAKEN_OUT = "GPU-12345678-0000-0000-0000-000000000007"


@pytest.fixture(autouse=True)
def folder(node: fake_nvml.FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(node.environment()["PERSEUS_GUARD_DIR"])
    monkeypatch.setenv("PERSEUS_GUARD_DIR", str(folder))
    return folder


def left(uuid: str, restore_clock_mhz: int | None = None) -> None:
    journal.write(Journal(uuid, "A100", restore_clock_mhz, "train.py (pid 77)", 77, journal.boot_id()))


@pytest.mark.parametrize("words", [(), ("--all",)])
def test_a_living_job_beside_it_is_no_failure(
    on_node: Program, node: fake_nvml.FakeNvml, words: tuple[str, ...]
) -> None:
    uuid = fake_nvml.UUID.format(0)
    left(uuid)
    node.state.gpu[0].locked_mhz = 900
    lease = OwnershipLock(uuid, "train.py (pid 77)")
    answer = on_node("clocks", "reset", *words)
    lease.release()
    assert uuid in answer.out
    assert answer.code == 0
    assert node.locked_mhz() == [900, 0]


@pytest.mark.thorough
def test_the_journal_of_a_gpu_that_is_gone_is_no_failure(on_node: Program) -> None:
    left(TAKEN_OUT)
    answer = on_node("clocks", "reset")
    assert TAKEN_OUT in answer.out
    assert answer.code == 0


@pytest.mark.thorough
def test_a_gpu_that_comes_back_is_put_right_by_its_journal(
    on_node: Program, node: fake_nvml.FakeNvml
) -> None:
    own = node.state.gpu[0].uuid
    left(own.decode(), restore_clock_mhz=1200)
    node.state.gpu[0].locked_mhz, node.state.gpu[0].uuid = 900, TAKEN_OUT.encode()
    assert on_node("clocks", "reset").code == 0
    node.state.gpu[0].uuid = own
    answer = on_node("clocks", "reset")
    assert (answer.code, own.decode() in answer.out) == (0, True)
    assert node.locked_mhz() == [1200, 0]
    assert list(journal.journaled_uuids()) == []


@pytest.mark.slow
def test_a_driver_that_refuses_is_a_failure(on_node: Program, node: fake_nvml.FakeNvml) -> None:
    left(fake_nvml.UUID.format(0))
    node.state.gpu[0].reset_error = 15
    answer = on_node("clocks", "reset")
    assert (answer.code, "Traceback" in answer.err) == (1, False)
    assert fake_nvml.UUID.format(0) in answer.out


@pytest.mark.parametrize("words", [("clocks", "reset"), ("doctor",)])
def test_the_root_of_all_is_no_folder_for_journals(
    on_node: Program, node: fake_nvml.FakeNvml, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    environment = node.environment() | {"PERSEUS_GUARD_DIR": "/"}
    monkeypatch.setattr(node, "environment", lambda: environment)
    answer = on_node(*words)
    assert "Traceback" not in answer.err
    assert "PERSEUS_GUARD_DIR=/" in answer.err + answer.out


@pytest.mark.slow
def test_a_failure_beside_a_living_job_has_a_code_of_its_own(
    on_node: Program, node: fake_nvml.FakeNvml
) -> None:
    for index in (0, 1):
        left(fake_nvml.UUID.format(index))
    node.state.gpu[1].reset_error = 15
    lease = OwnershipLock(fake_nvml.UUID.format(0), "train.py (pid 77)")
    answer = on_node("clocks", "reset")
    lease.release()
    assert answer.code == 3
