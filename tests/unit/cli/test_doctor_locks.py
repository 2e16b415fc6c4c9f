"""What ``perseus-ds doctor`` says of clocks that stand locked; it changes nothing."""

import json
from pathlib import Path

import fake_nvml
import pytest
from cli_program import Program

from perseus_ds.guard import journal
from perseus_ds.guard.claim import OwnershipLock
from perseus_ds.guard.journal import Journal

UUID = fake_nvml.UUID.format(0)
NOTHING = "nothing stands in the way"

pytestmark = pytest.mark.usefixtures("cuda_torch")


@pytest.fixture(autouse=True)
def folder(node: fake_nvml.FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(node.environment()["PERSEUS_GUARD_DIR"])
    monkeypatch.setenv("PERSEUS_GUARD_DIR", str(folder))
    return folder


def left(boot_id: str | None = None, uuid: str = UUID) -> None:
    journal.write(Journal(uuid, "A100", None, "train.py (pid 77)", 77, boot_id or journal.boot_id()))


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
    left(uuid="GPU-taken-out")
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
