"""Energy survives restarts: what is bridged, what is lost, and what the ledger reports of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseus_ds.runtime.metrics.ledger import EnergyLedger


class Desk:
    """Starts of one rank, each with its own ledger; the last one is killed when the next begins."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.time_s = 1000.0

    def start(self, gpu: str = "GPU-0") -> EnergyLedger:
        return EnergyLedger(self.path, gpu, now_s=lambda: self.time_s)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "metrics" / "energy" / "rank_00000.json")


def count(ledger: EnergyLedger, *readings_j: float) -> None:
    for reading_j in readings_j:
        ledger.note(reading_j, anew=False)


def test_the_first_start_counts_from_its_first_reading(desk: Desk) -> None:
    ledger = desk.start()
    count(ledger, 500.0, 500.0, 530.0, 570.0)
    assert (ledger.energy_j, ledger.error_j) == (70.0, 40.0)


def test_a_restart_in_place_loses_nothing(desk: Desk) -> None:
    count(desk.start(), 500.0, 530.0)
    for reading_j in (600.0, 700.0, 800.0):
        desk.time_s += 119.0
        ledger = desk.start()
        count(ledger, reading_j, reading_j + 10.0)
    assert ledger.energy_j == 310.0
    assert ledger.error_j == 10.0
    assert ledger.entry.starts == 4


@pytest.mark.parametrize(
    ("gpu", "later_s", "reading_j"), [("GPU-1", 1.0, 600.0), ("GPU-0", 121.0, 600.0), ("GPU-0", 1.0, 20.0)]
)
def test_what_may_be_another_jobs_is_not_counted_and_said(
    desk: Desk, gpu: str, later_s: float, reading_j: float
) -> None:
    count(desk.start(), 500.0, 530.0, 550.0)
    desk.time_s += later_s
    ledger = desk.start(gpu)
    count(ledger, reading_j, reading_j + 5.0)
    assert (ledger.energy_j, ledger.error_j) == (55.0, 25.0)


def test_a_reboot_is_no_restart_in_place(desk: Desk) -> None:
    count(desk.start(), 500.0, 530.0)
    ours = (Path("/proc/sys/kernel/random/boot_id")).read_text().strip()
    desk.path.write_text(desk.path.read_text().replace(ours, "another"))
    ledger = desk.start()
    count(ledger, 600.0, 605.0)
    assert ledger.energy_j == 35.0


def test_a_source_that_begins_anew_is_not_continued(desk: Desk) -> None:
    """As where power is integrated from the middle of a start on: the next start reads the counter again."""
    ledger = desk.start()
    count(ledger, 500.0, 530.0)
    ledger.note(0.0, anew=True)
    count(ledger, 7.0)
    assert ledger.energy_j == 37.0
    ledger = desk.start()
    count(ledger, 900.0, 910.0)
    assert ledger.energy_j == 47.0


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"energy_j": NaN}', "\0" * 512, " " * 4096])
def test_a_file_that_is_none_is_said_and_counted_from_nothing(desk: Desk, content: str) -> None:
    desk.path.parent.mkdir(parents=True)
    desk.path.write_text(content)
    ledger = desk.start()
    assert str(desk.path) in ledger.trouble()
    assert ledger.trouble() == ""
    count(ledger, 1.0, 3.0)
    assert ledger.energy_j == 2.0
    assert desk.start().energy_j == 2.0


def test_what_was_saved_survives(desk: Desk) -> None:
    ledger = desk.start()
    ledger.save(1000.0, 20.0)
    ledger.close()
    assert (desk.start().entry.saved_j, desk.start().entry.saved_error_j) == (1000.0, 20.0)


def test_a_folder_that_cannot_be_made_ends_the_file_and_not_the_count(desk: Desk) -> None:
    desk.path.parents[1].write_text("a file")
    ledger = desk.start()
    assert "not written" in ledger.trouble()
    count(ledger, 1.0, 3.0)
    ledger.close()
    assert ledger.energy_j == 2.0


def test_the_line_is_always_as_long(desk: Desk) -> None:
    ledger = desk.start()
    for power in range(12):
        count(ledger, 10.0**power / 3)
        assert desk.path.stat().st_size == 512
