"""What ``perseus-ds plan`` prints: the frontier in a few figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from perseus_ds.cli.terminal import counted, grid, sentences
from perseus_ds.config import Objective
from perseus_ds.plan import FrequencyPlan, PlanSet, select, select_for, unslowed_s
from perseus_ds.plan.playing.costs import PlanCosts, costs_of
from perseus_ds.plan.profile_error import EntryError, FewClocks

SLOWDOWNS_PCT = (1.0, 2.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One point of the frontier, and what a replica saves beside a straggler of that iteration time.

    ``saving_pct`` compares totals over each plan's own time; ``straggler_saving_pct`` compares both
    over the straggler's time, the rest of it spent waiting. ``saving_within_pct`` is half of the interval
    that holds the saving 95 times in 100, by the profile's errors (None: it has none).
    """

    name: str
    iteration_time_s: float
    slowdown_pct: float
    energy_j: float
    saving_pct: float
    saving_within_pct: float | None
    gap_pct: float
    straggler_saving_pct: float


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """A frontier in figures; ``checked`` states how many plans ``--verify`` has passed."""

    ranks: int
    stages: int
    microbatches: int
    schedule: str
    computations: int
    blocking_power_w: float
    plans: int
    t_min_s: float
    t_star_s: float
    baseline_iteration_time_s: float
    baseline_energy_j: float
    gap_mean_pct: float
    gap_worst_pct: float
    solve_time_s: float
    reserve_pct: float
    variation_slowdown_pct: float | None
    checked: int | None
    rows: tuple[Row, ...]
    costs: PlanCosts
    profile_error: EntryError | None = None
    few_clocks: FewClocks | None = None

    def as_json(self) -> dict[str, object]:
        """Return plain values, units in the keys."""
        return asdict(self)


def summarise(
    plans: PlanSet,
    *,
    checked: int | None = None,
    error: EntryError | None = None,
    few: FewClocks | None = None,
) -> PlanSummary:
    """Read the figures off the frontier."""
    rows = [_row("no slowdown", select(plans, Objective()))]
    for pct in SLOWDOWNS_PCT:
        limit_s = unslowed_s(plans) * (1.0 + pct / 100.0)
        if limit_s < plans.iteration_time_s[-1]:
            plan = select(plans, Objective("max_slowdown", max_slowdown_pct=pct))
            rows.append(_row(f"+{pct:g} %", plan, straggler_s=limit_s))
    rows.append(_row("least energy", select(plans, Objective("min_energy"))))
    rows.append(_row("T*", plans.plan(len(plans) - 1)))
    return PlanSummary(
        ranks=plans.schedule.ranks,
        stages=plans.schedule.stages,
        microbatches=plans.schedule.microbatches,
        schedule=plans.schedule.name,
        computations=len(plans.computations()),
        blocking_power_w=plans.blocking_power_w,
        plans=len(plans),
        t_min_s=plans.t_min_s,
        t_star_s=plans.t_star_s,
        baseline_iteration_time_s=plans.baseline.iteration_time_s,
        baseline_energy_j=plans.baseline.energy_j,
        gap_mean_pct=float(plans.waiting_gap_pct.mean()),
        gap_worst_pct=float(plans.waiting_gap_pct.max()),
        solve_time_s=plans.solve_time_s,
        reserve_pct=plans.reserve_pct,
        variation_slowdown_pct=plans.variation_slowdown_pct,
        checked=checked,
        rows=tuple(rows),
        costs=costs_of(select(plans, Objective())),
        profile_error=error,
        few_clocks=few,
    )


def render(summary: PlanSummary) -> str:
    """Lay the figures out for a terminal, 80 columns wide."""
    s = summary
    head = (
        f"{_stages(s)}, {counted(s.microbatches, 'microbatch', 'es')}, {s.schedule};"
        f" blocking power (one GPU that waits) {s.blocking_power_w:g} W\n"
        f"all clocks at maximum: {s.baseline_iteration_time_s:.6g} s, {s.baseline_energy_j:.6g} J;"
        f" fastest plan (T_min) {s.t_min_s:.6g} s\n"
        f"slowest plan (T*) {s.t_star_s:.6g} s: beyond it lower clocks save nothing, even in waits\n"
    )
    foot = (
        f"\n{s.plans} plans, solved in {s.solve_time_s:.2f} s; gap to the certified bound in the model of"
        f" this profile, over each plan's time: mean {s.gap_mean_pct:.3f} %, worst {s.gap_worst_pct:.3f} %"
    )
    foot += "\n" + _costs_line(s.costs)
    if s.reserve_pct:
        foot += f"\nreserve: stretched computations are planned {s.reserve_pct:g} % longer, as durations vary"
    if s.variation_slowdown_pct is not None:
        foot += (
            "\nas durations varied in the profile, an iteration of the fastest plan lasts"
            f" {s.variation_slowdown_pct:.2f} % longer"
        )
    if s.few_clocks is not None and s.few_clocks.scatter_pct is None:
        foot += f"\n{s.few_clocks}"
    if s.checked is not None:
        foot += f"\nverified: {s.checked} plans, their times, energies and bounds"
    table = grid(_headings(s), [_cells(row) for row in s.rows])
    return "\n".join([head, table, sentences(foot)])


def _costs_line(costs: PlanCosts) -> str:
    """What the first row asks of clocks and of the site."""
    after, before = costs.power, costs.power_before
    return (
        f"no slowdown: at most {costs.changes} changes of one GPU's clock per iteration,"
        f" {costs.changes_per_s:.3g} per second; {costs.splits} computations"
        " change theirs while they run.\nWaiting takes"
        f" {costs.waiting_j:.5g} J (before {costs.waiting_before_j:.5g} J); the pipeline's power is"
        f" {after.mean_w:.0f} W on average, {after.least_w:.0f} to {after.peak_w:.0f} W"
        f" (before {before.mean_w:.0f} W, {before.least_w:.0f} to {before.peak_w:.0f} W)"
    )


def _knows_errors(summary: PlanSummary) -> bool:
    return any(row.saving_within_pct is not None for row in summary.rows)


def _headings(summary: PlanSummary) -> list[str]:
    within = ["+- %"] if _knows_errors(summary) else []
    return ["plan", "time s", "slower %", "energy J", "saving %", *within, "gap %", "straggler %"]


def _stages(summary: PlanSummary) -> str:
    if summary.stages == summary.ranks:
        return counted(summary.stages, "stage")
    return f"{counted(summary.stages, 'stage')} on {counted(summary.ranks, 'GPU')}"


def _row(name: str, plan: FrequencyPlan, *, straggler_s: float = 0.0) -> Row:
    """Read one row off; the straggler is as slow as asked, else as the plan itself."""
    return Row(
        name=name,
        iteration_time_s=plan.iteration_time_s,
        slowdown_pct=plan.slowdown_pct,
        energy_j=plan.energy_j,
        saving_pct=plan.saving_pct,
        saving_within_pct=plan.saving_within_pct,
        gap_pct=float(plan.of.gap_pct[plan.index]),
        straggler_saving_pct=_straggler_saving_pct(plan.of, max(straggler_s, plan.iteration_time_s)),
    )


def _straggler_saving_pct(plans: PlanSet, straggler_s: float) -> float:
    """Compare both over the straggler's time: arXiv 2312.06902, equation 3."""
    until_s = max(straggler_s, plans.baseline.iteration_time_s)
    waiting_w = plans.baseline.blocking_power_w * plans.schedule.ranks
    waiting_j = waiting_w * (until_s - plans.baseline.iteration_time_s)
    effective_j = float(plans.effective_energy_j[select_for(plans, until_s).index])
    planned_j = effective_j + plans.blocking_total_w * until_s
    return 100.0 * (1.0 - planned_j / (plans.baseline.energy_j + waiting_j))


def _cells(row: Row) -> list[str]:
    return [
        row.name,
        f"{row.iteration_time_s:.6g}",
        f"{row.slowdown_pct:z.2f}",
        f"{row.energy_j:.6g}",
        f"{row.saving_pct:z.2f}",
        *([] if row.saving_within_pct is None else [f"{row.saving_within_pct:.2f}"]),
        f"{row.gap_pct:z.3f}",
        f"{row.straggler_saving_pct:z.2f}",
    ]
