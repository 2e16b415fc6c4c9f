"""How clock requests came to the device: in time, late, or not at all."""

from __future__ import annotations

from dataclasses import dataclass

LATE_S = 0.005
"""From when on a change that comes later than it was due counts as late, in wall-clock seconds."""
_MOST = 0.01


@dataclass(slots=True)
class RequestCounts:
    """What became of all requests so far.

    ``changes`` reached the device, ``late`` of them more than LATE_S after they were due; ``overtaken`` were
    dropped, since a newer one was due by then.
    """

    changes: int = 0
    late: int = 0
    overtaken: int = 0
    longest_late_s: float = 0.0

    def made(self, *, late_s: float = 0.0) -> None:
        """Count one change that reached the device."""
        self.changes += 1
        self.late += late_s > LATE_S
        self.longest_late_s = max(self.longest_late_s, late_s)

    @property
    def missed(self) -> float:
        """Of how many changes the moment was missed."""
        return (self.late + self.overtaken) / max(self.changes + self.overtaken, 1)

    @property
    def told(self) -> str:
        """One line, where that is more than a hundredth of all."""
        if self.missed <= _MOST:
            return ""
        return (
            f"{100.0 * self.missed:.1f} % of {self.changes + self.overtaken} changes of clock missed their"
            f" moment: {self.late} came more than {1e3 * LATE_S:g} ms late (at most"
            f" {1e3 * self.longest_late_s:.0f} ms), {self.overtaken} were overtaken by the next; within"
            " objective.changes_per_s a plan asks less often"
        )
