"""Straggler reports of nvidia-resiliency-ext: ours in its form, and its own as announcements.

Its package is not needed: what has the members of its ``Report`` is one.
Source: nvidia_resiliency_ext/straggler/reporting.py, ``Report`` and ``StragglerId``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from perseus_ds.errors import PerseusError
from perseus_ds.run_directory import RankPlace, RunDirectory, read_events, read_places
from perseus_ds.straggler.announcement.announcing import Announced, notify

_BACK = frozenset({"straggler_gone", "attached", "ended", "disabled"})
THRESHOLD = 0.75
"""Below which relative performance makes a rank a straggler, as in theirs."""


class ReportLike(Protocol):
    """What we read of their ``Report``: relative performance (0 to 1) by rank."""

    @property
    def gpu_relative_perf_scores(self) -> Mapping[int, float]:
        """Relative performance of every rank; NaN where it is not known."""


@dataclass(frozen=True)
class StragglerId:
    """A rank that is slow, and its node."""

    rank: int
    node: str


@dataclass(frozen=True)
class StragglerReport:
    """Our decision with the members of their ``Report``; what we do not measure is empty.

    ``gpus`` adds the GPU of every rank.
    """

    gpu_relative_perf_scores: Mapping[int, float]
    rank_to_node: Mapping[int, str]
    gpus: Mapping[int, str]
    section_relative_perf_scores: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    gpu_individual_perf_scores: Mapping[int, float] = field(default_factory=dict)
    section_individual_perf_scores: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    local_section_summaries: Mapping[str, object] = field(default_factory=dict)
    local_kernel_summaries: Mapping[str, object] = field(default_factory=dict)
    generate_report_elapsed_time: float = 0.0
    gather_on_rank0: bool = True
    rank: int | None = None

    def identify_stragglers(
        self,
        gpu_rel_threshold: float = THRESHOLD,
        section_rel_threshold: float = THRESHOLD,  # noqa: ARG002  # theirs, for sections that we do not have
        gpu_indiv_threshold: float = THRESHOLD,  # noqa: ARG002
        section_indiv_threshold: float = THRESHOLD,  # noqa: ARG002
    ) -> dict[str, object]:
        """Return the slow ranks under the keys of theirs."""
        slow = {
            StragglerId(rank, self.rank_to_node[rank])
            for rank, score in self.gpu_relative_perf_scores.items()
            if score < gpu_rel_threshold
        }
        return {
            "straggler_gpus_relative": slow,
            "straggler_gpus_individual": set(),
            "straggler_sections_relative": {},
            "straggler_sections_individual": {},
        }


def straggler_report(run_dir: str | Path) -> StragglerReport:
    """Return what a job decided last about its stragglers: 1 / slowdown for each rank of a slow pipeline.

    Raises:
        PerseusError: no journal, or no places of the ranks.
    """
    directory = RunDirectory(Path(run_dir))
    places = read_places(directory.places)
    slowdowns = _slow_gpus(read_events(directory.events))
    scores = {rank: 1.0 / slowdowns.get((place.host, place.gpu), 1.0) for rank, place in enumerate(places)}
    return StragglerReport(
        scores,
        {rank: place.host for rank, place in enumerate(places)},
        {rank: place.gpu for rank, place in enumerate(places)},
    )


def notify_report(
    run_dir: str | Path, report: ReportLike, *, threshold: float = THRESHOLD, reason: str = ""
) -> list[Announced]:
    """Announce every pipeline with a rank below the threshold, and end what was announced of the others.

    A pipeline is as slow as its slowest rank.

    Raises:
        OSError: a notice cannot be written.
        PerseusError: scores that cannot be meant, ranks that the job does not have, no running job.
    """
    places = read_places(RunDirectory(Path(run_dir)).places)
    worst = dict.fromkeys((place.pipeline for place in places), 1.0)
    for rank, score in report.gpu_relative_perf_scores.items():
        place = _place(places, rank)
        if not math.isnan(score):
            _check_score(rank, score)
            worst[place.pipeline] = min(worst[place.pipeline], score)
    return [
        notify(run_dir, pipeline=pipeline, slowdown=1.0 / score if score < threshold else 1.0, reason=reason)
        for pipeline, score in sorted(worst.items())
    ]


def notify_host(run_dir: str | Path, host: str, *, slowdown: float, reason: str = "") -> list[Announced]:
    """Announce every pipeline with a GPU on a host, as before its maintenance; a slowdown of 1 ends it.

    Raises:
        OSError: a notice cannot be written.
        PerseusError: no GPU of the job is on that host, or as `notify` does.
    """
    places = read_places(RunDirectory(Path(run_dir)).places)
    pipelines = sorted({place.pipeline for place in places if place.host == host})
    if not pipelines:
        known = ", ".join(sorted({place.host for place in places})[:8])
        raise PerseusError(f"the job has no GPU on host {host!r:.80}", hint=f"its hosts are {known}")
    return [notify(run_dir, pipeline=one, slowdown=slowdown, reason=reason) for one in pipelines]


def _slow_gpus(events: Iterable[Mapping[str, object]]) -> dict[tuple[str, str], float]:
    """How many times slower GPUs are, by host and GPU, by the last decision."""
    slow: dict[tuple[str, str], float] = {}
    for event in events:
        if event.get("event") in _BACK:
            slow = {}
        elif event.get("event") == "straggler":
            slow = {}
            stragglers = event.get("stragglers")
            for one in stragglers if isinstance(stragglers, list) else []:
                slowdown = max(1.0, float(one["slowdown"]))
                slow |= {(str(gpu["host"]), str(gpu["gpu"])): slowdown for gpu in one["gpus"]}
    return slow


def _place(places: list[RankPlace], rank: int) -> RankPlace:
    if not 0 <= rank < len(places):
        raise PerseusError(f"the report has rank {rank}, the job has 0 to {len(places) - 1}")
    return places[rank]


def _check_score(rank: int, score: float) -> None:
    if not 0.0 < score <= 1.0 + 1e-6:
        raise PerseusError(f"rank {rank} has a relative performance of {score}", hint="expected 0 to 1")
