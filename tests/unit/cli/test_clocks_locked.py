"""Clocks that stand locked: ``doctor`` names them, ``clocks reset`` restores them, as in an epilog."""

import json
from pathlib import Path

import fake_nvml
import pytest
from cli_program import Program

from perseus_ds.guard import journal
from perseus_ds.guard.claim import OwnershipLock
from perseus_ds.guard.journal import Journal

UUID = fake_nvml.UUID.format(0)
TAKEN_OUT = "GPU-12345678-0000-0000-0000-000000000007"
NOTHING = "nothing stands in the way"

pytestmark = pytest.mark.usefixtures("cuda_torch")


@pytest.fixture(autouse=True)
def folder(node: fake_nvml.FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(node.environment()["PERSEUS_GUARD_DIR"])
    monkeypatch.setenv("PERSEUS_GUARD_DIR", str(folder))
    return folder


def left(boot_id: str | None = None, uuid: str = UUID, restore_clock_mhz: int | None = None) -> None:
    boot = boot_id or journal.boot_id()
    journal.write(Journal(uuid, "A100", restore_clock_mhz, "train.py (pid 77)", 77, boot))


def findings(on_node: Program) -> list[str]:
    found = json.loads(on_node("doctor", "--json").out)["findings"]
    return [f"{one['what']} / {one['remedy']}" for one in found]


def test_nothing_is_said_of_gpus_that_run_free(on_node: Program, folder: Path) -> None:
    assert findings(on_node) == []
    assert not folder.exists(), "who looks makes no folder"


def test_the_journal_of_a_dead_guard(on_node: Program, node: fake_nvml.FakeNvml) -> None:
    left()
    node.state.gpu[0].locked_mhz = 720
    [said] = findings(on_node)
    assert UUID in said
    assert "train.py" in said
    assert "clocks reset" in said
    assert node.locked_mhz() == [720, 0]
    assert on_node("clocks", "reset").code == 0
    assert findings(on_node) == []


def test_a_journal_that_cannot_be_relied_on(on_node: Program, folder: Path) -> None:
    left()
    (folder / f"{UUID}.json").write_text("{")
    [said] = findings(on_node)
    assert UUID in said
    assert "journal" in said


def test_a_journal_of_another_boot_locks_nothing(on_node: Program) -> None:
    left(boot_id="another")
    assert findings(on_node) == []


@pytest.mark.thorough
def test_a_journal_of_a_gpu_that_is_gone_stays(on_node: Program) -> None:
    left(uuid=TAKEN_OUT)
    assert len(findings(on_node)) == 1
    assert on_node("clocks", "reset").code == 0
    assert len(findings(on_node)) == 1


def test_a_clock_that_was_locked_by_somebody(on_node: Program, node: fake_nvml.FakeNvml) -> None:
    node.state.gpu[1].locked_mhz = 720
    [said] = findings(on_node)
    assert "GPU 1" in said
    assert "720 MHz" in said
    assert "restore_clock_mhz" in said
    assert "reset --all" in said
    assert NOTHING not in on_node("doctor").out


def test_a_living_job_is_nobody_who_left_something(on_node: Program, node: fake_nvml.FakeNvml) -> None:
    left()
    node.state.gpu[0].locked_mhz = 720
    lease = OwnershipLock(UUID, "train.py (pid 77)")
    assert findings(on_node) == []
    lease.release()


@pytest.mark.parametrize("words", [(), ("--all",)])
def test_a_living_job_beside_it_is_no_failure(
    on_node: Program, node: fake_nvml.FakeNvml, words: tuple[str, ...]
) -> None:
    uuid = fake_nvml.UUID.format(0)
    left(uuid=uuid)
    node.state.gpu[0].locked_mhz = 900
    lease = OwnershipLock(uuid, "train.py (pid 77)")
    answer = on_node("clocks", "reset", *words)
    lease.release()
    assert uuid in answer.out
    assert answer.code == 0
    assert node.locked_mhz() == [900, 0]


@pytest.mark.thorough
def test_a_gpu_that_comes_back_is_put_right_by_its_journal(
    on_node: Program, node: fake_nvml.FakeNvml
) -> None:
    own = node.state.gpu[0].uuid
    left(uuid=own.decode(), restore_clock_mhz=1200)
    node.state.gpu[0].locked_mhz, node.state.gpu[0].uuid = 900, TAKEN_OUT.encode()
    assert on_node("clocks", "reset").code == 0
    node.state.gpu[0].uuid = own
    answer = on_node("clocks", "reset")
    assert (answer.code, own.decode() in answer.out) == (0, True)
    assert node.locked_mhz() == [1200, 0]
    assert list(journal.journaled_uuids()) == []


@pytest.mark.slow
def test_a_driver_that_refuses_is_a_failure(on_node: Program, node: fake_nvml.FakeNvml) -> None:
    left()
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
        left(uuid=fake_nvml.UUID.format(index))
    node.state.gpu[1].reset_error = 15
    lease = OwnershipLock(fake_nvml.UUID.format(0), "train.py (pid 77)")
    answer = on_node("clocks", "reset")
    lease.release()
    assert answer.code == 3
