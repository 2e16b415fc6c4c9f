"""This rank's part in pacing replicas by loads: foretell, report, and choose plans by what all report."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.errors import EngineError
from perseus_ds.runtime.comm.load_exchange import LoadExchange
from perseus_ds.schedule import Load
from perseus_ds.straggler.pacing import Forecast
from perseus_ds.straggler.replica_plans import ReplicaPlans


class IterationPacer:
    """Has all replicas' predictions exchanged at an iteration's begin, and their plans chosen by them.

    ``speaks``: this rank reports for its replica. All ranks take in the reports of an iteration, at the
    latest when it ends, and so keep the same book (`ReplicaPlans`). Ranks that are lost within an iteration
    are reported when it `ends`; until then it goes on as it was.
    """

    def __init__(
        self, replica_plans: ReplicaPlans, exchange: LoadExchange, forecast: Forecast, *, speaks: bool
    ) -> None:
        self._replica_plans = replica_plans
        self._exchange = exchange
        self._forecast = forecast
        self._speaks = speaks
        self._predicted_s: float | None = None
        self._index: int | None = None
        self._lost: EngineError | None = None

    def foretell(self, loads: Sequence[Load] | None) -> None:
        """Take in the loads of the coming iteration's microbatches, where they are known."""
        usable = self._speaks and loads is not None and len(loads) == self._forecast.microbatches
        self._predicted_s = self._forecast.of(loads) if loads is not None and usable else None

    def begins(self, index: int) -> None:
        """Report how long iteration ``index`` will take, in which all report."""
        self._index = index
        try:
            self._exchange.begin(self._predicted_s)
        except EngineError as error:
            self._lost, self._index = error, None

    def changes(self) -> bool:
        """Whether what all have reported changes a plan from now on; once."""
        if self._index is None:
            return False
        try:
            return self._exchange.arrived() and self._take(self._index)
        except EngineError as error:
            self._lost, self._index = error, None
            return False

    def ends(self) -> None:
        """Take in the reports that came too late to be followed.

        Raises:
            EngineError: some rank did not report in time.
        """
        if self._lost is not None:
            raise self._lost
        if self._index is not None:
            self._take(self._index)

    def close(self) -> None:
        """Take part no more."""
        self._exchange.close()

    def _take(self, index: int) -> bool:
        self._index = None
        return self._replica_plans.pace(index, self._exchange.take())
