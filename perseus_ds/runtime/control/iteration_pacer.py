"""Report how far this replica is at the marks of an iteration, and take in the reports of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import EngineError
from perseus_ds.runtime.comm.progress import ProgressExchange, outlook_of
from perseus_ds.schedule import Load, Schedule, dag_of
from perseus_ds.straggler import Forecast, Foretold, ProgressMarks, ReplicaPlans


def looks_at(schedule: Schedule, marks: ProgressMarks, rank: int) -> tuple[int, ...]:
    """Positions of one rank's computations before which each mark is looked for.

    Reports of a mark are looked for where a rank's work depends on the first rank's having come there. No
    rank can wait for another then that waits for it.

    Shape: [marks]; the number of the rank's computations where nothing of it does.
    """
    dag, computed = (
        dag_of(schedule),
        [[i for i in order if i.kind.is_computation] for order in schedule.orders],
    )
    place = {node: index for index, node in enumerate(dag.nodes)}
    own = [place[node] for node in computed[rank]]
    found = []
    for after in marks.after:
        later = _after(dag.edges, len(dag.nodes), place[computed[0][after]]) if after >= 0 else None
        found.append(0 if later is None else next((p for p, node in enumerate(own) if later[node]), len(own)))
    return tuple(found)


def _after(edges: Sequence[tuple[int, int]], nodes: int, node: int) -> list[bool]:
    """Which nodes run after one."""
    followers: list[list[int]] = [[] for _ in range(nodes)]
    for before, later in edges:
        followers[before].append(later)
    seen, ahead = [False] * nodes, [node]
    while ahead:
        for later in followers[ahead.pop()]:
            if not seen[later]:
                seen[later] = True
                ahead.append(later)
    return seen


class IterationPacer:
    """This rank's part in pacing; ``speaks``: it reports for its replica, ``by_loads``: its forecasts.

    All ranks take in all marks of an iteration in their order, at the latest when it ends, and so keep the
    same book (`ReplicaPlans`). ``due_s`` is when in the iteration an answer could be given. On devices whose
    time is carried from rank to rank the host may know it earlier. Ranks that are lost within an iteration
    are reported when it `ends`; until then it goes on as it was.
    """

    def __init__(
        self,
        replica_plans: ReplicaPlans,
        exchange: ProgressExchange,
        forecast: Forecast,
        *,
        looks: Sequence[int],
        speaks: bool,
        usual_s: NDArray[np.float64],
        by_loads: bool = True,
    ) -> None:
        self._replica_plans = replica_plans
        self._exchange = exchange
        self._forecast = forecast
        self._marks = forecast.marks
        self._looks = looks
        self._speaks = speaks
        self._foretells = speaks and by_loads and forecast.tells
        self._usual_s = usual_s
        self._foretold: Foretold | None = None
        self._index: int | None = None
        self._taken = 0
        self._begun_s = 0.0
        self._lost: EngineError | None = None
        self.due_s: float | None = None

    @property
    def knows_loads(self) -> bool:
        """Whether this iteration is foretold by its loads."""
        return self._foretold is not None

    def foretell(self, loads: Sequence[Load] | None) -> None:
        """Take in the loads of the coming iteration's microbatches, where they are known."""
        usable = self._foretells and loads is not None and len(loads) == self._forecast.microbatches
        self._foretold = self._forecast.of(loads) if loads is not None and usable else None

    def begins(self, index: int, now_s: float) -> None:
        """Iteration ``index`` begins, in which all report."""
        self._index, self._taken, self._begun_s, self.due_s = index, 0, now_s, None
        self._exchange.begin()
        self._unless_lost(self._tell_the_begin)

    def before(self, position: int) -> None:
        """A computation is about to be issued: take in the reports so far."""
        self._unless_lost(lambda: self._take_until(position))

    def _take_until(self, position: int) -> None:
        while self._index is not None and self._taken < len(self._looks):
            if position < self._looks[self._taken] or not self._exchange.arrived(self._taken):
                return
            self._take()

    def after(self, position: int, now_s: float) -> None:
        """A computation is over: report it where it is a mark."""
        if self._index is None or not self._speaks:
            return
        told = self._exchange.told
        if told < len(self._marks.after) and position == self._marks.after[told]:
            self._unless_lost(lambda: self._tell(now_s - self._begun_s))
            self.before(position + 1)

    def due(self, now_s: float) -> bool:
        """Whether there is an answer to be followed from now on; once."""
        if self.due_s is None or now_s - self._begun_s < self.due_s:
            return False
        self.due_s = None
        return True

    def ends(self) -> None:
        """Take in the rest: all have come past their marks when an iteration has ended.

        Raises:
            EngineError: some rank did not report in time.
        """
        if self._lost is not None:
            raise self._lost
        if self._index is None:
            return
        while self._exchange.told < len(self._marks.share):
            self._exchange.tell()
        while self._taken < len(self._marks.share):
            self._take()
        self._index = None

    def close(self) -> None:
        """Take part no more."""
        self._exchange.close()

    def _unless_lost(self, act: Callable[[], None]) -> None:
        """Do one thing of an iteration; where the others cannot be reached, do no more in it."""
        try:
            act()
        except EngineError as error:
            self._lost, self._index = error, None

    def _tell_the_begin(self) -> None:
        if self._speaks:
            self._tell(0.0)
            return
        for _ in self._marks.share:
            self._exchange.tell()

    def _tell(self, elapsed_s: float) -> None:
        mark = self._exchange.told
        if self._foretold is None:
            self._exchange.tell(elapsed_s)
        else:
            self._exchange.tell(
                elapsed_s, float(self._foretold.left_s[mark]), float(self._foretold.error[mark])
            )

    def _take(self) -> None:
        assert self._index is not None
        mark, numbers = self._taken, self._exchange.take(self._taken)
        outlook = outlook_of(
            numbers, self._usual_s * self._marks.left(mark), float(self._forecast.usual.error[mark])
        )
        self._taken += 1
        changed = self._replica_plans.told(self._index, outlook)
        elapsed_s = numbers[0][np.isfinite(numbers[0])]
        if changed:
            self.due_s = float(elapsed_s.max()) if len(elapsed_s) else 0.0
