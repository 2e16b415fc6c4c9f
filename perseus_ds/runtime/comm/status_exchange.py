"""One turn per iteration: hear what all ranks posted last, and post what is new here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perseus_ds.device import EventReason
from perseus_ds.errors import EngineError, PerseusError
from perseus_ds.runtime.comm.control_channel import Council
from perseus_ds.runtime.comm.notice_watch import NoticeWatch
from perseus_ds.runtime.comm.status import Layout, News, Word
from perseus_ds.runtime.lifecycle.job_context import Ground
from perseus_ds.runtime.measure.arrivals import Arrivals
from perseus_ds.runtime.measure.energy_watch import EnergyWatch
from perseus_ds.runtime.measure.recorder import Iteration
from perseus_ds.runtime.observe.conflict_monitor import KINDS, Lookout
from perseus_ds.straggler import Notices

_PATIENCE_S = 5.0
"""All have posted an iteration before any has ended the next: what is missing then is not coming."""


class Exchange:
    """Gather this rank's word, spread what came back.

    ``notices`` are watched by rank 0 alone, which tells the others, so that all hear them at the same
    iteration.
    """

    def __init__(
        self,
        council: Council,
        layout: Layout,
        *,
        arrivals: Arrivals,
        watch: EnergyWatch,
        lookout: Lookout,
        notices: NoticeWatch | None,
    ) -> None:
        self._council = council
        self._layout = layout
        self._arrivals = arrivals
        self._watch = watch
        self._lookout = lookout
        self._notices = notices

    def iteration_begins(self) -> None:
        """Have a look at what is announced: it is told at the end of this iteration."""
        if self._notices is not None:
            self._notices.look()

    def turn(
        self, index: int, passed: Sequence[Iteration], *, plan_ready: bool, brief: bool = False
    ) -> News | None:
        """Hear of the iteration before, and tell of this one; None where nothing was told yet.

        ``brief`` waits for the others no longer than they can take when all is well.

        Raises:
            EngineError: some rank did not tell anything in time.
        """
        news = self._collected(_PATIENCE_S if brief else None)
        if self._notices is not None:
            self._notices.say()
        self._arrivals.note(passed)
        last = passed[-1] if passed else None
        word = Word(
            plan_ready=plan_ready,
            duration_s=None if last is None else last.duration_s,
            conflicts=self._lookout.untold(),
            own_s=self._arrivals.own_s(index - self._arrivals.behind),
            capped=last is not None and self._capped(last),
            told=None if self._notices is None else self._notices.told,
        )
        self._council.post(self._layout.vector(word))
        return news

    def someone_failed(self) -> bool:
        """Whether another rank's failure ended a meeting; hear what it had to tell. Silence is no failure."""
        try:
            news = self._collected(_PATIENCE_S)
        except EngineError:
            return False
        return news is not None and news.failed

    def fail(self) -> None:
        """Tell the others that this rank is leaving, if they can be reached."""
        try:
            self._council.collect(patience_s=_PATIENCE_S)
            self._council.post(self._layout.vector(Word(failed=True, conflicts=self._lookout.untold())))
        except PerseusError:
            return  # silence is understood as well: the others' next wait is bounded

    def close(self, *, well: bool) -> None:
        """End what is under way. Notices do not outlive a job that ended well; a restarted one hears them."""
        self._council.close()
        if well and self._notices is not None:
            self._notices.clear()

    def _collected(self, patience_s: float | None) -> News | None:
        numbers = self._council.collect(patience_s=patience_s)
        if numbers is None:
            return None
        news = self._layout.news(numbers)
        self._lookout.hear(news.conflicts)
        return news

    def _capped(self, iteration: Iteration) -> bool:
        if iteration.start_s is None:
            return False
        _, reasons = self._watch.clock_between(iteration.start_s, iteration.end_s)
        return EventReason(reasons).spoils


def exchange_of(ground: Ground, undo: list[Callable[[], None]]) -> Exchange:
    """Begin an exchange on what a job stands on; ``undo`` gets what ends it."""
    job, voice = ground.job, ground.voice
    replicas = job.replicas if ground.config.straggler.enabled else 1
    notices = None
    if job.rank == 0 and replicas > 1:
        notices = NoticeWatch(Notices(ground.directory.notices, replicas=replicas), voice, replicas=replicas)
        notices.start()
        undo.append(notices.close)
    return Exchange(
        ground.council,
        Layout(kinds=KINDS, replicas=replicas, replica=job.replica),
        arrivals=ground.arrivals,
        watch=ground.watch,
        lookout=ground.lookout,
        notices=notices,
    )
