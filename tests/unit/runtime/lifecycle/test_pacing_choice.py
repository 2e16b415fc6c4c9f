"""Pacing by loads of a job's own accord: only where the profile promises it, ended where audits deny it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hand_made_plan import hand_made

from perseus_ds.config import Objective
from perseus_ds.config.settings import StragglerSettings
from perseus_ds.plan import Expected, FrequencyPlan
from perseus_ds.profile import LoadFit
from perseus_ds.run_directory import MeasuredSide, Summary
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.pacing_choice import PacingChoice, chosen_for, ended
from perseus_ds.schedule import Kind, Load, textbook

WITHOUT, PACED = Expected(5.0, 0.05, 0.3, 0.05), Expected(15.0, 0.15, 0.4, 0.05)
FITS = {(0, Kind.FORWARD): LoadFit(Load(1.0, 1.0), 0.1, 0.7, 0.2, 0.01, 0.98, 100)}
SCHEDULE = textbook("1f1b", stages=2, microbatches=1)


class Ranks:
    """All ranks' answers to a gather, and what rank 0 logs."""

    def __init__(self, known: tuple[bool, ...], settings: StragglerSettings, objective: Objective) -> None:
        self.known, self.met = known, 0
        self.events: list[tuple[str, str]] = []
        self.context = cast(
            "JobContext",
            SimpleNamespace(
                job=Job(0, 4, 0, 0, SCHEDULE, {"replicas": "2"}),
                config=SimpleNamespace(straggler=settings, objective=objective),
                channel=self,
                log=self,
            ),
        )

    def gather(self, own: object) -> list[tuple[int, int, bool]]:
        del own
        self.met += 1
        return [(rank // 2, rank % 2, knows) for rank, knows in enumerate(self.known)]

    def broadcast_result(self, act: Callable[[], str]) -> str:
        self.met += 1
        return act()

    def event(self, event: str, line: str, **facts: object) -> None:
        del facts
        self.events.append((event, line))


def plan(
    without: Expected | None = WITHOUT, paced: Expected | None = PACED, replicas: int = 2
) -> FrequencyPlan:
    of = replace(
        hand_made(),
        fingerprint={"replicas": str(replicas)},
        expected={} if without is None else {1: without},
        by_loads={} if paced is None else {1: paced},
    )
    return of.plan(1)


def chosen(
    of: FrequencyPlan,
    *,
    known: tuple[bool, ...] = (True, False, True, False),
    r2: float = 0.98,
    policy: str = "no_slowdown",
    max_cost_pct: float = 0.2,
) -> tuple[PacingChoice, str]:
    ranks = Ranks(known, StragglerSettings(max_cost_pct=max_cost_pct), Objective(policy=cast("Any", policy)))
    fits = {key: replace(fit, r2=r2) for key, fit in FITS.items()}
    choice = chosen_for(ranks.context, of, fits, loads_known=True, named="")
    assert [event for event, _ in ranks.events] == ["pacing_choice"], "one line states what was chosen"
    return choice, ranks.events[0][1]


def test_it_is_on_where_the_profile_promises_a_saving_at_no_time() -> None:
    choice, line = chosen(plan())
    assert choice.on
    assert line == (
        "paced by loads: +10.0 +- 0.5 % energy saved at +0.10 % of time expected of it; "
        "loads explain 98 % of how durations vary"
    )


def test_later_stages_need_not_know_loads_and_every_first_stage_has_to() -> None:
    assert chosen(plan(), known=(True, False, True, False))[0].on
    choice, line = chosen(plan(), known=(True, True, False, True))
    assert not choice.on
    assert "not known before it begins (replica 1)" in line


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (plan(paced=replace(PACED, saving_pct=5.4)), "within its error"),
        (plan(paced=replace(PACED, slowdown_pct=0.3)), "straggler.max_cost_pct allows 0.2 %"),
        (plan(paced=None), "could not be worked out"),
        (plan(without=None), "could not be worked out"),
        (plan(replicas=3), "another number of replicas"),
    ],
)
def test_it_is_off_and_one_line_states_why(of: FrequencyPlan, reason: str) -> None:
    choice, line = chosen(of)
    assert not choice.on
    assert line.startswith("not paced by loads: ")
    assert reason in line


def test_loads_that_explain_too_little_and_limits_of_an_objective_speak_against_it() -> None:
    assert "loads explain 40 %" in chosen(plan(), r2=0.4)[1]
    assert not chosen(plan(), r2=0.4)[0].on
    assert not chosen(plan(), policy="deadline")[0].on


@pytest.mark.parametrize("pacing", ["loads", "never"])
def test_an_explicit_value_wins_and_nothing_is_asked_or_stated(pacing: str) -> None:
    settings = StragglerSettings(pacing=cast("Any", pacing))
    ranks = Ranks((True,) * 4, settings, Objective())
    choice = chosen_for(ranks.context, plan(), FITS, loads_known=True, named="")
    assert choice == PacingChoice(on=pacing == "loads")
    assert (ranks.met, ranks.events) == (0, [])


def test_where_durations_do_not_follow_loads_nothing_is_exchanged_or_stated() -> None:
    ranks = Ranks((True,) * 4, StragglerSettings(), Objective())
    assert chosen_for(ranks.context, plan(), {}, loads_known=True, named="") == PacingChoice(on=False)
    assert (ranks.met, ranks.events) == (0, [])


def measured(saving_pct: float, slowdown_pct: float) -> Summary:
    time_s = 1.0 + slowdown_pct / 100.0
    sides = [
        MeasuredSide(one, energy_j, 40, 0.0002, 0.5, 20)
        for one, energy_j in ((1.0, 1000.0), (time_s, 1000.0 - 10.0 * saving_pct))
    ]
    return Summary(sides[0], sides[1], True, 15.0)


@pytest.mark.parametrize(
    ("saving_pct", "slowdown_pct", "over"),
    [
        (14.0, 0.1, ""),
        (14.0, 0.28, ""),  # within the error of what is allowed
        (14.0, 0.5, "iteration time +0.50 +- 0.06 % measured, +0.05 % expected without"),
        (4.8, 0.1, ""),  # no less than expected without, by their errors
        (3.0, 0.1, "3.0 +- 0.1 % energy saved as measured, 5.0 +- 0.3 % expected without"),
    ],
)
def test_an_audit_ends_it_where_the_job_is_slower_or_saves_less(
    saving_pct: float, slowdown_pct: float, over: str
) -> None:
    ranks = Ranks((), StragglerSettings(), Objective())
    choice = PacingChoice(on=True, without=WITHOUT)
    assert ended(ranks.context, choice, measured(saving_pct, slowdown_pct), named="") == bool(over)
    assert ranks.events == ([("paced_no_more", f"not paced by loads any more: {over}")] if over else [])


def test_pacing_that_the_user_asked_for_is_not_ended() -> None:
    ranks = Ranks((), StragglerSettings(pacing="loads"), Objective())
    assert not ended(ranks.context, PacingChoice(on=True), measured(1.0, 9.0), named="")
    assert ranks.met == 0
