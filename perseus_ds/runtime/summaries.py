"""From what the ranks measured to the files that a reader opens: summary, timelines, ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan import FrequencyPlan
from perseus_ds.plan.record import Options, Portion
from perseus_ds.run_directory.paths import RunDirectory, write_json
from perseus_ds.run_directory.records import RecordedIteration, Span, Spent, Summary
from perseus_ds.runtime.accounting import Mode, RankReport, Side, Total, at_one_size, robust_mean
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.status import conflict_rows
from perseus_ds.schedule import Instruction, dag_of

_SIDES = (Mode.BASELINE, Mode.PERSEUS)
BESIDE_A_STRAGGLER = "measured_beside_a_straggler"
"""The fact of a summary whose iterations were as long as a straggler needed, whatever the plan."""


def summarise(
    reports: Sequence[RankReport], predicted_pct: float, *, simulated: bool, facts: Mapping[str, object]
) -> Summary | None:
    """Sum the energy of all GPUs, iteration by iteration; None before both sides were measured.

    Where all of a side ran beside a straggler, both sides are of such iterations, and the facts say so.
    """
    sides, facts = [_side(reports, mode) for mode in _SIDES], dict(facts)
    if None in sides:
        sides = [_side(reports, mode) for mode in (Mode.BASELINE_BESIDE, Mode.PERSEUS_BESIDE)]
        facts[BESIDE_A_STRAGGLER] = True
    if sides[0] is None or sides[1] is None:
        return None
    baseline, perseus = (side.averages() for side in at_one_size([sides[0], sides[1]]))
    outside = Spent(
        time_s=max(report.outside.time_s for report in reports),
        energy_j=sum(report.outside.energy_j for report in reports),
    )
    return Summary(baseline, perseus, simulated, predicted_pct, facts, outside)


def beside_stragglers(reports: Sequence[RankReport]) -> dict[str, object]:
    """The same for iterations in which replicas waited for a straggler, as far as they were measured.

    They are kept out of the summary's two sides: how long they take is the straggler's doing.
    """
    rows = {}
    for mode in (Mode.BASELINE_BESIDE, Mode.PERSEUS_BESIDE):
        if (side := _side(reports, mode)) is not None:
            found = side.averages()
            rows[mode.value.split()[0]] = {
                "iteration_time_s": found.iteration_time_s,
                "energy_j": found.energy_j,
                "iterations": found.iterations,
            }
    return {"beside_stragglers": rows} if rows else {}


def skipped_steps(reports: Sequence[RankReport]) -> dict[str, object]:
    """Count iterations of neither side, since gradients overflowed; nothing where none did."""
    skipped = max(report.skipped for report in reports)
    return {"skipped_steps": skipped} if skipped else {}


def _side(reports: Sequence[RankReport], mode: Mode) -> Side | None:
    totals = [report.totals.get(mode, Total()) for report in reports]
    return Side.of(totals, [report.period_s for report in reports])


def timelines(
    reports: Sequence[RankReport], plan: FrequencyPlan, job: Job, *, simulated: bool
) -> list[RecordedIteration]:
    """Place the first replica's measured durations on one time axis.

    Starts follow from the schedule's graph, not from the clocks of hosts, which need not agree.
    """
    first = {report.pipeline_rank: report for report in reversed(reports) if report.replica == 0}
    drawn = []
    for mode in (Mode.BASELINE, Mode.PERSEUS):
        rows = {rank: list(report.durations_s.get(mode, ())) for rank, report in first.items()}
        if all(rows.values()):
            drawn.append(_timeline(mode, rows, plan, job, simulated=simulated))
    return drawn


def write_ranks(reports: Sequence[RankReport], directory: RunDirectory, *, run: str) -> None:
    """Leave every rank's totals in a file of its own."""
    for report in reports:
        content = {
            "run": run,
            "rank": report.rank,
            "stage": report.pipeline_rank,
            "replica": report.replica,
            "outside": asdict(report.outside),
            "totals": {mode.value: _total(total) for mode, total in report.totals.items()},
            "mean_durations_s": {mode.value: list(s) for mode, s in report.durations_s.items()},
            "temperature_c": {mode.value: mean_c for mode, mean_c in report.temperature_c.items()},
            "conflicts": conflict_rows(report.conflicts),
            "clock_requests": asdict(report.clock_requests),
        }
        write_json(directory.rank(report.rank), content)


def _total(total: Total) -> dict[str, float]:
    return {
        "iterations": total.iterations,
        "iteration_time_s": _mean(total.samples["time_s"]),
        "energy_j": _mean(total.samples["energy_j"]),
    }


def _mean(values: NDArray[np.float64]) -> float:
    return robust_mean(values).mean if len(values) else 0.0


def _timeline(
    mode: Mode, rows: Mapping[int, list[float]], plan: FrequencyPlan, job: Job, *, simulated: bool
) -> RecordedIteration:
    dag = dag_of(job.schedule)
    portions = plan.portions() if mode is Mode.PERSEUS else {}
    measured = {
        instruction: duration_s
        for rank, order in enumerate(job.schedule.orders)
        for instruction, duration_s in zip(
            (i for i in order if i.kind.is_computation), rows[rank], strict=True
        )
    }
    durations = [_pure_s(node, measured, plan) for node in dag.nodes]
    starts = dag.earliest_starts(durations, plan.of.fixed_s)
    spans = tuple(
        _span(
            node,
            start,
            duration,
            plan.of.options.get((node.stage, node.kind)),
            portions.get(node, (Portion(0, 1.0),)),
        )
        for node, start, duration in zip(dag.nodes, starts, durations, strict=True)
    )
    return RecordedIteration(
        name=mode.value,
        iteration_time_s=max(span.start_s + span.duration_s for span in spans),
        blocking_power_w=plan.of.blocking_power_w,
        simulated=simulated,
        spans=spans,
        rank_of_stage=tuple(rank for _, rank in sorted(job.schedule.rank_of_stages().items())),
    )


def _pure_s(node: Instruction, measured: Mapping[Instruction, float], plan: FrequencyPlan) -> float:
    """A computation as measured; what else there is without its waiting, as profiled."""
    if node.kind.is_computation:
        return measured[node]
    return plan.of.fixed_s.get((node.stage, node.kind), 0.0)


def _span(
    node: Instruction, start_s: float, duration_s: float, options: Options | None, portions: Sequence[Portion]
) -> Span:
    """A computation at its options (0, the highest clock, in the baseline), or something without a clock."""
    if options is None:
        return Span(node, start_s, duration_s, None, None)
    spent_j = sum(share * float(options.energy_j[option]) for option, share in portions)
    planned_s = sum(share * float(options.time_s[option]) for option, share in portions)
    main = max(portions, key=lambda portion: portion.share).option
    return Span(node, start_s, duration_s, round(options.mean_mhz(main)), spent_j / planned_s)


# What iterations take, by token and by sample.


def worth(summary: Summary, reports: Sequence[RankReport], job: Job) -> dict[str, object]:
    """Return facts for a summary; what nobody counts is left out.

    Units: joules of the GPUs, per token and per sample.
    """
    found = {"token": _tokens(reports, job), "sample": _samples(job)}
    counts = {name: count for name, count in found.items() if count}
    known = {
        mode.value: {f"energy_per_{name}_j": side.energy_j / count for name, count in counts.items()}
        for mode, side in zip(_SIDES, (summary.baseline, summary.perseus), strict=True)
    }
    return {"worth": known} if counts else {}


def _tokens(reports: Sequence[RankReport], job: Job) -> float:
    """Tokens of an iteration, as the first rank of each pipeline counted them; 0: nobody did.

    The mean of both sides, to which the energies of both were brought where batches differ (`at_one_size`).
    """
    first = {job.places[one.rank].pipeline: one for one in reports if one.pipeline_rank == 0}
    chunks = len({i.stage for i in job.order}) or 1
    sizes = [np.concatenate([one.totals[mode].samples["size"] for mode in _SIDES]) for one in first.values()]
    return sum(fmean(row) / chunks for row in sizes if len(row))


def _samples(job: Job) -> float:
    """Samples of an iteration, where the framework knows the size of a microbatch; else 0."""
    traits: Mapping[str, str] = job.fingerprint
    first = (traits.get("micro_batch_size") or traits.get("microbatch", "")).split(" ")[0]
    each = int(first) if first.isdecimal() else 0
    return each * job.schedule.microbatches * max(1, sum(map(len, job.sets)))
