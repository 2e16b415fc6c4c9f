"""A listener that notes its calls as words: "begins 2", "<F", "F>", "ends", "other", "broke"."""

from __future__ import annotations

from perseus_ds.runtime.adapter import Batch
from perseus_ds.schedule import Kind, Load


class CallNotes:
    """Notes into ``calls``, which may be a list that the host writes to as well."""

    def __init__(self, calls: list[str] | None = None, *, wants: bool = True) -> None:
        self.calls: list[str] = [] if calls is None else calls
        self.wants = wants

    def iteration_begins(self, batch: Batch) -> bool:
        self.note(f"begins {batch.microbatches}")
        return self.wants

    def before(self, kind: Kind, load: Load | None = None) -> None:
        self.note(f"<{kind.value}")

    def after(self, kind: Kind) -> None:
        self.note(f"{kind.value}>")

    def iteration_ends(self) -> None:
        self.note("ends")

    def other_schedule_begins(self) -> None:
        self.note("other")

    def iteration_broke(self) -> None:
        self.note("broke")

    def note(self, call: str) -> None:
        self.calls.append(call)
