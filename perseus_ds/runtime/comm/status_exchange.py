"""Once per iteration: collect what all ranks posted last, and post what is new here."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.device import EventReason
from perseus_ds.errors import EngineError, PerseusError
from perseus_ds.runtime.comm.control_channel import ControlChannel
from perseus_ds.runtime.comm.notice_watch import NoticeWatch
from perseus_ds.runtime.comm.status import JobStatus, RankStatus, StatusLayout
from perseus_ds.runtime.measure.arrivals import Arrivals
from perseus_ds.runtime.measure.energy_watch import EnergyWatch
from perseus_ds.runtime.measure.recorder import Iteration
from perseus_ds.runtime.observe.conflict_monitor import ConflictMonitor

_PATIENCE_S = 5.0
"""All have posted an iteration before any has ended the next: what is missing then is not coming."""


class StatusExchange:
    """Gather this rank's report, spread what came back.

    ``notices`` are watched by rank 0 alone, which tells the others, so that all know of them at the same
    iteration.
    """

    def __init__(
        self,
        channel: ControlChannel,
        layout: StatusLayout,
        *,
        arrivals: Arrivals,
        watch: EnergyWatch,
        conflict_monitor: ConflictMonitor,
        notices: NoticeWatch | None,
    ) -> None:
        self._channel = channel
        self._layout = layout
        self._arrivals = arrivals
        self._watch = watch
        self._conflict_monitor = conflict_monitor
        self._notices = notices

    def iteration_begins(self) -> None:
        """Have the notices looked at: they are sent at the end of this iteration."""
        if self._notices is not None:
            self._notices.wake()

    def turn(
        self,
        index: int,
        passed: Sequence[Iteration],
        *,
        plans_ready: int,
        microbatches: int,
        brief: bool = False,
    ) -> JobStatus | None:
        """Collect the iteration before, and report this one; None where nothing was reported yet.

        ``brief`` waits for the others no longer than they can take when all is well.

        Raises:
            EngineError: some rank did not report anything in time.
        """
        job_status = self._collected(_PATIENCE_S if brief else None)
        if self._notices is not None:
            self._notices.report()
        self._arrivals.note(passed)
        last = passed[-1] if passed else None
        rank_status = RankStatus(
            plans_ready=plans_ready,
            microbatches=microbatches,
            duration_s=last.duration_s if last is not None and last.intervals else None,
            conflicts=self._conflict_monitor.unpublished(),
            own_s=self._arrivals.own_s(index - self._arrivals.behind),
            capped=last is not None and self._capped(last),
            announced=None if self._notices is None else self._notices.announced,
        )
        self._channel.post(self._layout.vector(rank_status))
        return job_status

    def someone_failed(self) -> bool:
        """Whether another rank's failure ended an exchange; silence is no failure."""
        try:
            job_status = self._collected(_PATIENCE_S)
        except EngineError:
            return False
        return job_status is not None and job_status.failed

    def fail(self) -> None:
        """Tell the others that this rank is leaving, if they can be reached."""
        try:
            self._channel.collect(patience_s=_PATIENCE_S)
            self._channel.post(
                self._layout.vector(RankStatus(failed=True, conflicts=self._conflict_monitor.unpublished()))
            )
        except PerseusError:
            return  # silence is understood as well: the others' next wait is bounded

    def close(self, *, well: bool) -> None:
        """End what is under way. Notices do not outlive a job that ended well; a restarted one finds them."""
        self._channel.close()
        if well and self._notices is not None:
            self._notices.clear()

    def _collected(self, patience_s: float | None) -> JobStatus | None:
        numbers = self._channel.collect(patience_s=patience_s)
        if numbers is None:
            return None
        job_status = self._layout.job_status(numbers)
        self._conflict_monitor.learn(job_status.conflicts)
        return job_status

    def _capped(self, iteration: Iteration) -> bool:
        _, reasons = self._watch.clock_between(iteration.start_s, iteration.end_s)
        return EventReason(reasons).spoils
