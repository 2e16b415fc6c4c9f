"""A disk that is full under the metrics: said once, the last whole file stays, and space is used again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from virtual_host import VirtualHost

from perseus_ds.runtime.metrics import Labels, Metric, MetricSample, Publisher

SMALL = 64 << 10
EVERY_S = 15.0

pytest.importorskip("prometheus_client")


class Counted:
    """Figures that only grow."""

    labels = Labels(gpu={}, job={})

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
    host, lines, path = VirtualHost(), list[str](), disk / "metrics" / "host.prom"
    publisher = Publisher(Counted(), path, say=lines.append, threads=host)
    host.sleep(2.5 * EVERY_S)
    before = path.read_text()
    assert before.endswith(" 3.0\n")

    filler = fill(disk)
    host.sleep(10.0 * EVERY_S)
    (line,) = lines
    assert str(path) in line
    assert path.read_text() == before, "still whole"
    assert [one.name for one in path.parent.iterdir()] == ["host.prom"], "nothing half written is left"

    filler.unlink()
    host.sleep(2.0 * EVERY_S)
    assert len(lines) == 2
    assert path.read_text().endswith(" 15.0\n")
    publisher.close()
    assert (len(lines), host.failures) == (2, [])
    host.close()


def test_a_disk_that_is_full_from_the_start_costs_a_line(disk: Path) -> None:
    fill(disk)
    host, lines = VirtualHost(), list[str]()
    publisher = Publisher(Counted(), disk / "host.prom", say=lines.append, threads=host)
    host.sleep(10.0 * EVERY_S)
    publisher.close()
    assert len(lines) == 1
    host.close()
