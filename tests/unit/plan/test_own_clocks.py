"""A plan of one's own: the frontier's own clocks come back at their price, bad rows are named."""

from dataclasses import replace
from pathlib import Path

import pytest

from perseus_ds.errors import PlanError
from perseus_ds.plan import ClockRow, PlanSet, build, read_clock_rows
from perseus_ds.plan.playing.play import play
from perseus_ds.profile import Point, Profile
from perseus_ds.schedule import Kind, textbook

POWER_W = 70.0
SCHEDULE = textbook("1f1b", stages=2, microbatches=3)


@pytest.fixture(scope="module")
def profile() -> Profile:
    def points(time_s: float) -> tuple[Point, ...]:
        return tuple(
            Point(mhz, time_s * 1400 / mhz, time_s * (90 + 200 * (mhz / 1400) ** 2)) for mhz in (1400, 1000)
        )

    durations = {(s, k): 0.1 * (1 + s) * (2 if k is Kind.BACKWARD else 1) for s in (0, 1) for k in KINDS}
    return Profile({key: points(time_s) for key, time_s in durations.items()}, blocking_power_w=POWER_W)


KINDS = (Kind.FORWARD, Kind.BACKWARD)


def rows_of(plans: PlanSet, index: int) -> list[ClockRow]:
    return [
        ClockRow(
            one.instruction.stage,
            one.instruction.microbatch,
            one.instruction.kind,
            part.clock_mhz,
            part.duration_s,
        )
        for one in play(plans.plan(index))
        for part in one.parts
    ]


def test_every_plan_of_a_frontier_comes_back_at_its_own_price(profile: Profile) -> None:
    plans = build(profile, SCHEDULE, blocking_power_w=POWER_W)
    assert len(plans.splits) > 0
    for index in range(0, len(plans), max(1, len(plans) // 20)):
        own = PlanSet.from_clocks(profile, SCHEDULE, rows_of(plans, index))
        assert own.iteration_time_s[0] == pytest.approx(plans.iteration_time_s[index])
        assert own.energy_j[0] == pytest.approx(plans.energy_j[index])
        assert own.lower_bound_j[0] <= plans.lower_bound_j[index] + 1e-9
        assert own.effective_bound_j[0] <= own.effective_energy_j[0] + 1e-9
        assert own.plan(0).portions().keys() == plans.plan(index).portions().keys()


def test_all_clocks_at_maximum_are_the_baseline(profile: Profile) -> None:
    rows = [ClockRow(s, m, k, 1400) for s in (0, 1) for m in range(3) for k in KINDS]
    own = PlanSet.from_clocks(profile, SCHEDULE, rows)
    assert own.iteration_time_s[0] == pytest.approx(own.baseline.iteration_time_s)
    assert own.energy_j[0] == pytest.approx(own.baseline.energy_j)


def test_a_power_of_waiting_must_be_known(profile: Profile) -> None:
    rows = [ClockRow(s, m, k, 1400) for s in (0, 1) for m in range(3) for k in KINDS]
    with pytest.raises(PlanError, match="what a waiting GPU takes"):
        PlanSet.from_clocks(replace(profile, blocking_power_w=None), SCHEDULE, rows)
    assert PlanSet.from_clocks(profile, SCHEDULE, rows, blocking_power_w=90.0).blocking_power_w == 90.0


HEADER = "stage,microbatch,kind,clock_mhz,duration_s\n"
WHOLE = [f"{s},{m},{k},1400," for s in (0, 1) for m in range(3) for k in "FB"]


def changed(row: int, text: str) -> str:
    return HEADER + "\n".join([*WHOLE[:row], text, *WHOLE[row + 1 :]]) + "\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("stage,kind\n0,F\n", "no column microbatch, clock_mhz"),
        (changed(2, "0,1,Q,1400,"), "row 4: kind is 'Q'"),
        (changed(2, "0,1,L,1400,"), "row 4: "),
        (changed(2, "0,-1,F,1400,"), "row 4: microbatch is '-1'"),
        (changed(2, "0,1,F,fast,"), "row 4: clock_mhz is 'fast'"),
        (changed(2, "0,1"), "row 4: kind is None"),
        (changed(2, "0,1,F,1200,"), "row 4: forward of stage 0 was not measured at 1200 MHz"),
        (changed(2, "0,7,F,1400,"), "row 4: the schedule does not run 0F7"),
        (changed(2, "0,1,F,1400,soon"), "row 4: duration_s is 'soon'"),
        (changed(0, "0,0,F,1400,\n0,0,F,1000,0.1"), "row 2: 0F0 has two clocks"),
        (HEADER + "\n".join(WHOLE[:-1]), "no row gives a clock for 1B2"),
        (HEADER + "\n".join([*WHOLE, "0,0,F,1000,1", "0,0,F,1000,1"]), "more than two clocks"),
        (HEADER, "no row gives a clock for 0F0 and 11 more"),
        ("\0", "bytes"),
    ],
)
def test_a_bad_row_is_named(profile: Profile, tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "clocks.csv"
    path.write_text(text)
    with pytest.raises(PlanError) as refused:
        PlanSet.from_clocks(profile, SCHEDULE, read_clock_rows(path))
    assert named in refused.value.message
    assert "\n" not in refused.value.message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"none\.csv: No such file"):
        read_clock_rows(tmp_path / "none.csv")
