"""A disk that is full under the metrics: said once, the last whole file stays, and space is used again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from virtual_host import VirtualHost

from perseus_ds.runtime.metrics.ledger import EnergyLedger
from perseus_ds.runtime.metrics.metric import Labels, Metric, MetricSample
from perseus_ds.runtime.metrics.publisher import Publisher
from perseus_ds.runtime.metrics.textfile import TextFile

SMALL = 64 << 10


class Counted:
    """Figures that only grow."""

    def __init__(self) -> None:
        self.turns = 0

    def turn(self) -> None:
        self.turns += 1

    def samples(self) -> list[MetricSample]:
        return [MetricSample(Metric.ENERGY, float(self.turns))]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(folder)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Take all that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1024))
        except OSError:
            return filler


def test_metrics_go_on_when_there_is_room_again(disk: Path) -> None:
    host, lines = VirtualHost(), list[str]()
    path, ledger = disk / "metrics" / "host.prom", EnergyLedger(disk / "energy.json", "GPU-0")
    file = TextFile(path, Labels(gpu={}, job={}))
    publisher = Publisher(Counted(), ledger, file, every_s=1.0, say=lines.append, threads=host)
    host.sleep(2.5)
    before = path.read_text()
    assert before.endswith("{} 3.0\n")

    filler = fill(disk)
    host.sleep(10.0)
    (line,) = lines
    assert str(path) in line
    assert "No space" in line
    assert path.read_text() == before, "still whole"
    assert [one.name for one in path.parent.iterdir()] == ["host.prom"], "nothing half written is left"
    for counter_j in (0.0, 5.0, 9.0):
        ledger.note(counter_j, anew=False)

    filler.unlink()
    host.sleep(2.0)
    (line,) = lines[1:]
    assert "written again" in line
    assert path.read_text().endswith("{} 15.0\n")
    publisher.close()
    assert (len(lines), host.failures) == (2, [])
    assert EnergyLedger(disk / "energy.json", "GPU-0").entry.energy_j == 9.0, "its line has its room"
    host.close()


def test_a_disk_that_is_full_from_the_start_costs_a_line_each(disk: Path) -> None:
    fill(disk)
    host, lines = VirtualHost(), list[str]()
    path = disk / "host.prom"
    ledger = EnergyLedger(disk / "energy.json", "GPU-0")
    file = TextFile(path, Labels(gpu={}, job={}))
    publisher = Publisher(Counted(), ledger, file, every_s=1.0, say=lines.append, threads=host)
    host.sleep(10.0)
    for counter_j in (0.0, 5.0):
        ledger.note(counter_j, anew=False)
    assert len(lines) == 2
    assert all("No space" in line for line in lines)
    assert ledger.energy_j == 5.0, "counted on in memory"
    publisher.close()
    host.close()
