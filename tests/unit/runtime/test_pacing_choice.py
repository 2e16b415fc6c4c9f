"""Pacing by loads of a job's own accord: where all know loads that explain durations; audits may end it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perseus_ds.config.settings import StragglerSettings
from perseus_ds.profile import LoadFit
from perseus_ds.run_directory.records import MeasuredSide, Summary
from perseus_ds.runtime.context import JobContext
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.planned_run import is_paced, why_ended
from perseus_ds.schedule import Kind, Load, textbook

FITS = {(0, Kind.FORWARD): LoadFit(Load(1.0, 1.0), 0.1, 0.7, 0.2, 0.01, 0.98, 100)}
SCHEDULE = textbook("1f1b", stages=2, microbatches=1)
ALL_KNOW = (True, False, True, False)


class Ranks:
    """Answers of all ranks to a gather, and the lines of rank 0."""

    def __init__(self, known: tuple[bool, ...], pacing: str, replicas: int) -> None:
        self.known, self.met = known, 0
        self.events: list[tuple[str, str]] = []
        settings = StragglerSettings(pacing=cast("Any", pacing))
        self.context = cast(
            "JobContext",
            SimpleNamespace(
                job=Job(0, 4, 0, 0, SCHEDULE, {"replicas": str(replicas)}),
                config=SimpleNamespace(straggler=settings),
                channel=self,
                log=self,
            ),
        )

    def gather(self, own: object) -> list[tuple[int, int, bool]]:
        del own
        self.met += 1
        return [(rank // 2, rank % 2, knows) for rank, knows in enumerate(self.known)]

    def event(self, event: str, line: str, **facts: object) -> None:
        del facts
        self.events.append((event, line))


def chosen(known: tuple[bool, ...] = ALL_KNOW, *, r2: float = 0.98) -> tuple[bool, str]:
    ranks = Ranks(known, "automatic", 2)
    fits = {key: replace(fit, r2=r2) for key, fit in FITS.items()}
    paced = is_paced(ranks.context, fits, loads_known=True, named="")
    assert [event for event, _ in ranks.events] == ["pacing_choice"], "one line states what was chosen"
    return paced, ranks.events[0][1]


def test_it_is_on_where_every_first_stage_knows_loads_and_later_ones_need_not() -> None:
    assert chosen(ALL_KNOW)[0]
    paced, line = chosen((True, True, False, True))
    assert not paced
    assert "replica 1" in line


def test_loads_that_explain_too_little_speak_against_it() -> None:
    paced, line = chosen(r2=0.4)
    assert not paced
    assert "40 %" in line


@pytest.mark.parametrize(
    ("pacing", "replicas", "fits"), [("never", 2, FITS), ("automatic", 1, FITS), ("automatic", 2, {})]
)
def test_where_it_is_no_question_nothing_is_exchanged_or_stated(
    pacing: str, replicas: int, fits: dict[tuple[int, Kind], LoadFit]
) -> None:
    ranks = Ranks(ALL_KNOW, pacing, replicas)
    assert not is_paced(ranks.context, fits, loads_known=True, named="")
    assert (ranks.met, ranks.events) == (0, [])


def measured(slowdown_pct: float) -> Summary:
    sides = [MeasuredSide(one, 900.0, 40, 0.0002, 0.5, 20) for one in (1.0, 1.0 + slowdown_pct / 100.0)]
    return Summary(sides[0], sides[1], True, 15.0)


@pytest.mark.parametrize(("slowdown_pct", "over"), [(0.1, False), (0.28, False), (0.5, True)])
def test_an_audit_ends_it_where_the_job_is_slower_beyond_errors(slowdown_pct: float, *, over: bool) -> None:
    assert bool(why_ended(measured(slowdown_pct), allowed_pct=0.25)) == over
