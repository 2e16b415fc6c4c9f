"""What a framework's own monitors show of us."""

from __future__ import annotations

from collections.abc import Mapping

from perseus_ds.runtime.adapter import Adapter
from perseus_ds.runtime.observe.event_log import EventLog


class Scalars:
    """Write scalars at the framework's own pace, and whenever the plan changes.

    A monitor that fails ends the scalars and nothing else.
    """

    def __init__(self, adapter: Adapter, log: EventLog) -> None:
        self._adapter = adapter
        self._every = adapter.scalars_every
        self._log = log
        self._written: Mapping[str, float] = {}
        self._turn = 0

    @property
    def wanted(self) -> bool:
        """Whether anybody looks."""
        return self._every is not None

    def write(self, shown: Mapping[str, float]) -> None:
        """Write what is shown, if it is time or the plan is another one."""
        if self._every is None or not shown:
            return
        self._turn += 1
        fresh = shown.get("plan") != self._written.get("plan") or shown.keys() != self._written.keys()
        if not fresh and self._turn % self._every:
            return
        self._written = dict(shown)
        try:
            self._adapter.write_scalars(shown)
        except Exception as error:  # noqa: BLE001  # a full disk or a lost service is no reason to stop
            self._every = None
            self._log.line_once(f"{self._adapter.name}'s monitor takes no more scalars: {error}")
