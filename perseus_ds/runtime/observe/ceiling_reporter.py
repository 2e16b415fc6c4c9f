"""Report which power ceiling holds, what it costs, and what it has cost when it is over."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from perseus_ds.runtime.observe.event_log import EventLog
from perseus_ds.straggler import CapNumbers, HeldCeiling, Standing


class CeilingReporter:
    """One line when a ceiling comes, changes or is over; every plan that it brings goes to the journal.

    ``standing`` returns what holds by the watch over notices, with its source and its end.
    """

    def __init__(self, log: EventLog, standing: Callable[[], Standing]) -> None:
        self._log = log
        self._standing = standing
        self._known: CapNumbers | None = None
        self._unheld: CapNumbers | None = None
        self._plans: tuple[int, ...] = ()
        self._iterations, self._lasted_s = 0, 0.0

    def report_unheld(self, numbers: CapNumbers | None) -> None:
        """Report once that a ceiling stands while no plan runs: clocks are the default, or swept."""
        if numbers is not None and numbers != self._unheld:
            self._log.event(
                "power_cap_unheld",
                f"the power ceiling of {_watts(numbers)} is not held yet: no plan runs that could",
                power_cap_w=numbers.power_cap_w,
            )
        self._unheld = numbers

    def report(self, ceiling: HeldCeiling, iteration_s: float | None) -> None:
        """Report what is new; ``iteration_s`` is how long the iteration lasted that was exchanged last."""
        if ceiling.binds and iteration_s is not None:
            self._iterations, self._lasted_s = self._iterations + 1, self._lasted_s + iteration_s
        numbers = ceiling.numbers
        if numbers != self._known:
            if numbers is None:
                self._over(ceiling)
            else:
                self._holds(ceiling, numbers)
            self._known = numbers
        elif ceiling.plans != self._plans and numbers is not None:
            self._log.event("power_cap_plan", None, level_w=ceiling.level_w, plans=list(ceiling.plans))
        self._plans = ceiling.plans

    def _holds(self, ceiling: HeldCeiling, numbers: CapNumbers) -> None:
        cost, standing = ceiling.cost(numbers.power_cap_w), self._standing()
        cap = standing.cap
        until_s = None if cap is None else cap.until_s
        until = "" if until_s is None else f" until {_time_of_day(until_s)}"
        slower = f"{cost.slowdown_pct:.1f} % slower{until}"
        told = f"power ceiling of {_watts(numbers)}"
        if numbers.power_cap_w < ceiling.least_w:
            line = (
                f"{told} cannot be held: the slowest plan takes {_number(ceiling.least_w)} W; "
                f"it runs, {slower}"
            )
        elif numbers.power_cap_w >= ceiling.free_w:
            line = f"{told}: no slower{until}, the plan takes {_number(ceiling.free_w)} W"
        else:
            line = f"{told}: {slower}, plan {cost.plans[0]} takes {_number(cost.power_w)} W"
        if numbers.ramp_w_per_s:
            line += f", by {numbers.ramp_w_per_s:g} W/s"
        if standing.source:
            line += f" ({standing.source}{': ' + cap.reason if cap is not None and cap.reason else ''})"
        self._log.event(
            "power_cap",
            line,
            power_cap_w=numbers.power_cap_w,
            per="job" if numbers.of_job else "pipeline",
            ramp_w_per_s=numbers.ramp_w_per_s,
            until_s=until_s,
            source=standing.source,
            plans=list(cost.plans),
            power_w=cost.power_w,
            slowdown_pct=cost.slowdown_pct,
            held=numbers.power_cap_w >= ceiling.least_w,
            default_w=ceiling.default_w,
        )

    def _over(self, ceiling: HeldCeiling) -> None:
        cost = "it slowed no iteration"
        slowdown_pct = 0.0
        if self._iterations:
            slowdown_pct = 100.0 * (self._lasted_s / self._iterations / ceiling.free_s - 1.0)
            cost = f"{self._iterations} iterations lasted {slowdown_pct:.1f} % longer than planned without it"
        self._log.event(
            "power_cap_over",
            f"no power ceiling holds any more: {cost}",
            iterations=self._iterations,
            lasted_s=self._lasted_s,
            slowdown_pct=slowdown_pct,
        )
        self._iterations, self._lasted_s = 0, 0.0


def _watts(numbers: CapNumbers) -> str:
    whose = "for the whole job" if numbers.of_job else "for each pipeline"
    return f"{_number(numbers.power_cap_w)} W {whose}"


def _number(watts: float) -> str:
    return f"{watts:,.0f}".replace(",", " ")


def _time_of_day(moment_s: float) -> str:
    """Hour and minute; with the date where it is not today."""
    moment = datetime.fromtimestamp(moment_s).astimezone()
    today = moment.date() == datetime.now().astimezone().date()
    return moment.strftime("%H:%M" if today else "%Y-%m-%d %H:%M")
