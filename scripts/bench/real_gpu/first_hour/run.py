"""One check after the other, within a budget of time; what fails to run is a finding too."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from first_hour.bench import Bench
from first_hour.checks import CHECKS, Check
from first_hour.report import CheckResult, Figures, Report, Verdict

BUDGET_S = 600.0
_LAST_BEGUN = 0.8
"""Of the budget: later no check begins, since the longest takes a minute."""


def first_hour(
    bench: Bench,
    machine: Figures,
    *,
    progress: Callable[[str], None] = lambda _: None,
    budget_s: float = BUDGET_S,
    checks: Iterable[tuple[int, Check]] = CHECKS,
) -> Report:
    """Make all checks; reads only.

    Cost: some four minutes of one GPU, never more than ``budget_s`` and one check.
    """
    begun_s = bench.threads.now_s()
    findings = []
    for number, check in checks:
        took_s = bench.threads.now_s() - begun_s
        asks = (check.__doc__ or "").splitlines()[0].partition(": ")[2].rstrip(".")
        if took_s > _LAST_BEGUN * budget_s:
            findings.append(_not_measured(number, asks, f"out of time after {took_s:.0f} s"))
            continue
        progress(f"check {number} ({took_s:.0f} s so far): {asks}")
        try:
            findings.append(check(bench))
        except Exception as error:  # noqa: BLE001  # one check that cannot be made keeps no other from it
            findings.append(_not_measured(number, asks, f"{type(error).__name__}: {error}".splitlines()[0]))
        progress(f"  {findings[-1].verdict.value}")
    return Report(machine, tuple(findings), bench.threads.now_s() - begun_s)


def _not_measured(number: int, asks: str, why: str) -> CheckResult:
    remedy = "send this; the other checks stand for themselves"
    return CheckResult(number, asks, "made", Verdict.NOT_MEASURED, {"reason": why}, remedy)
