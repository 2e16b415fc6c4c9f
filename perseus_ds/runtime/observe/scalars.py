"""What TensorBoard, W&B and the CSV monitor show of us, through DeepSpeed's own monitor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

from perseus_ds.adapters.deepspeed.seam import PipelineEngine
from perseus_ds.run_directory import Summary
from perseus_ds.runtime.control.active_plan import ActivePlan
from perseus_ds.runtime.measure.accounting import EnergyAccount
from perseus_ds.runtime.observe.event_log import EventLog

_EVERY = 10  # DeepSpeed's own default for steps_per_print


class _Monitor(Protocol):
    """What we use of ``deepspeed.monitor.monitor.MonitorMaster``."""

    enabled: bool

    def write_events(self, event_list: list[tuple[str, float, int]]) -> None:
        """Write (name, value, samples) to every monitor that is on."""


class Scalars:
    """Write ``Perseus/...`` beside ``Train/Samples/...``, over the same number of samples.

    Rank 0 alone writes, as DeepSpeed does, at its ``steps_per_print`` and whenever the plan changes. A
    monitor that fails ends the scalars and nothing else.
    """

    def __init__(self, engine: PipelineEngine, log: EventLog) -> None:
        monitor = cast("_Monitor | None", getattr(engine, "monitor", None))
        on = engine.global_rank == 0 and monitor is not None and monitor.enabled
        self._monitor = monitor if on else None
        self._engine = engine
        self._log = log
        self._every = _steps_per_print(engine)
        self._written: Mapping[str, float] = {}
        self._turn = 0

    @property
    def wanted(self) -> bool:
        """Whether anybody looks."""
        return self._monitor is not None

    def write(self, shown: Mapping[str, float]) -> None:
        """Write what is shown, if it is time or the plan is another one."""
        if self._monitor is None or not shown:
            return
        self._turn += 1
        fresh = shown.get("plan") != self._written.get("plan") or shown.keys() != self._written.keys()
        if not fresh and self._turn % self._every:
            return
        self._written = dict(shown)
        samples = int(getattr(self._engine, "global_samples", self._turn))
        try:
            self._monitor.write_events([(f"Perseus/{name}", value, samples) for name, value in shown.items()])
        except Exception as error:  # noqa: BLE001  # a full disk or a lost service is no reason to stop
            self._monitor = None
            self._log.line_once(f"DeepSpeed's monitor takes no more scalars: {error}")


def shown(active_plan: ActivePlan, account: EnergyAccount, summary: Summary | None) -> dict[str, float]:
    """Gather what a running plan shows.

    ``rank0_*`` is what rank 0's GPU took in the iterations settled last, the rest is of the whole job, as
    the audits measured it.
    """
    scalars: dict[str, float] = {
        "plan": active_plan.plan,
        "straggler_time_s": active_plan.awaited_s,
        "slack_s": active_plan.slack_s,
    }
    if account.latest is not None:
        scalars["rank0_energy_per_iteration_j"], scalars["rank0_power_w"] = account.latest
    if summary is not None:
        energy_j, time_s = summary.perseus.energy_j, summary.perseus.iteration_time_s
        scalars |= {
            "energy_per_iteration_j": energy_j,
            "power_w": energy_j / time_s,
            "saving_pct": summary.saving_pct,
            "slowdown_pct": summary.slowdown_pct,
        }
    return scalars


def _steps_per_print(engine: object) -> int:
    ask = getattr(engine, "steps_per_print", None)
    steps = ask() if callable(ask) else None
    return steps if isinstance(steps, int) and steps > 0 else _EVERY
