"""A rank's numbers in a file that node_exporter's textfile collector reads: always whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from perseus_ds.errors import PerseusError
from perseus_ds.files import write_trusted
from perseus_ds.run_directory import write_whole
from perseus_ds.runtime.metrics.metric import Exposition, Labels, MetricSample, lasting


class TextFile:
    """Replaces the file with each write; a disk that is full is reported once, and tried again."""

    def __init__(self, path: Path, labels: Labels) -> None:
        self._path = path
        self._exposition = Exposition(labels)
        self._there = self._failing = False

    def write(self, samples: Iterable[MetricSample]) -> str:
        """Write what holds now; return what there is to report: that it fails from now on, or no more."""
        try:
            self._put(self._exposition.text(samples))
        except (OSError, PerseusError) as error:
            known, self._failing = self._failing, True
            reason = getattr(error, "strerror", None) or str(error)
            return (
                "" if known else f"{self._path} is not written: {reason}; training goes on, and so do tries"
            )
        failed, self._failing = self._failing, False
        return f"{self._path} is written again" if failed else ""

    def _put(self, text: str) -> None:
        """Replace the file; its folder is made where it has not been there, or was removed."""
        write = write_trusted if self._there else write_whole
        self._there = False
        write(self._path, text)
        self._there = True

    def end(self, samples: Iterable[MetricSample]) -> str:
        """Leave what still holds after the job."""
        return self.write(lasting(samples))
