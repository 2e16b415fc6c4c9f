"""Why a job's life with us ends, and what each reason logs, reports and raises.

| reason | logs | informs the other ranks | raises, where the user wants that |
|---|---|---|---|
| ended | the event | no | nothing |
| failed | the line, on this rank | yes, unless it goes on alone | its error |
| followed | the event, without a line: the failed rank has logged it | no | that another rank failed |
| parted | the line, on rank 0 | no: all of them know | that their batches differ |
"""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.errors import EngineError, PerseusError
from perseus_ds.runtime.comm.control_channel import different_sizes
from perseus_ds.runtime.event_log import EventLog


@dataclass(frozen=True, slots=True)
class Ending:
    """One row of the table; where this rank ``tells`` the others, it logs the line itself."""

    error: PerseusError | None = None
    silent: bool = False
    tells: bool = False

    def log(self, log: EventLog) -> None:
        """Report what there is to report."""
        if self.error is None:
            log.event("ended")
            return
        line = f"off, training goes on at default clocks: {self.error}"
        if self.tells:
            log.line_here(line)
        log.event("disabled", None if self.tells or self.silent else line, reason=str(self.error))


def ended() -> Ending:
    """The job is over, or gives its engine back."""
    return Ending()


def failed(error: PerseusError) -> Ending:
    """This rank cannot go on."""
    return Ending(error, tells=True)


def followed() -> Ending:
    """Another rank could not."""
    return Ending(EngineError("another rank of the job reported an error, see its log"), silent=True)


def parted(fewest: int, most: int) -> Ending:
    """Ranks train batches of different sizes."""
    hint = "every replica has to train as many microbatches"
    return Ending(EngineError(different_sizes(fewest, most), hint=hint))
