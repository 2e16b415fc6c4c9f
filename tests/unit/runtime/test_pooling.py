"""Every rank's report on one clock becomes one: means over replicas, the shortest where others waited."""

from collections.abc import Mapping
from typing import Any

import pytest

from perseus_ds.profile import Point
from perseus_ds.profile.estimate import Estimate
from perseus_ds.runtime.pooling import Measured, MeasuredSweep, Pooled, pool
from perseus_ds.schedule import Kind

SA, RA, SG, RG = Kind.SEND_ACTIVATION, Kind.RECV_ACTIVATION, Kind.SEND_GRAD, Kind.RECV_GRAD


def rank_status(
    stage: int,
    replica: int = 0,
    *,
    time_s: float = 1.0,
    blocking_w: float = 50.0,
    fixed_s: Mapping[Kind, float] = {},
    transfers_s: Mapping[Kind, tuple[float, ...]] = {},
    achieved_mhz: int | None = 1000,
    reasons: int = 0,
    spread: float = 0.0,
    time_sd_s: float | None = None,
) -> Measured:
    point = Point(1000, time_s, 100 * time_s, 0.3, 4.0, 8, achieved_mhz, reasons, time_sd_s)
    fixed, transfers = (
        {(stage, kind): value for kind, value in some.items()} for some in (fixed_s, transfers_s)
    )
    points = {(stage, Kind.FORWARD): point}
    return Measured(replica, Estimate(1000, points, blocking_w, fixed, transfers, spread))


def test_replicas_are_averaged_and_their_errors_shrink() -> None:
    point = pool([rank_status(0, 0, time_s=1.96), rank_status(0, 1, time_s=2.04)]).points[0, Kind.FORWARD]
    assert (point.time_s, point.energy_j, point.samples) == pytest.approx((2.0, 200.0, 16))
    assert point.time_se_s == pytest.approx(0.3 / 2**0.5)
    assert point.energy_se_j == pytest.approx(4.0 / 2**0.5)


@pytest.mark.parametrize("slow", [{"achieved_mhz": 900}, {"time_s": 1.2}], ids=["held down", "slower"])
def test_a_slow_gpu_adds_nothing_to_the_points_of_the_others(slow: Mapping[str, Any]) -> None:
    own = {"time_s": 1.5, "blocking_w": 90.0} | slow
    everyone = [rank_status(0, 0), rank_status(0, 1, **own), rank_status(0, 2), rank_status(1, 1, time_s=5.0)]
    found = pool(everyone)
    assert found.points[0, Kind.FORWARD] == pool([everyone[0], everyone[2]]).points[0, Kind.FORWARD]
    assert found.points[1, Kind.FORWARD].time_s == 5.0
    assert found.blocking_power_w == 50.0


def test_a_stage_whose_gpus_are_all_held_down_is_measured_as_it_is() -> None:
    everyone = [rank_status(0, one, time_s=1.5, achieved_mhz=900) for one in range(2)]
    point = pool(everyone).points[0, Kind.FORWARD]
    assert (point.time_s, point.achieved_mhz) == (1.5, 900)


def test_replicas_with_other_batches_are_averaged() -> None:
    """A replica may have had longer batches where durations vary within a window already."""
    everyone = [rank_status(0, 0, time_s=1.0, spread=0.4), rank_status(0, 1, time_s=2.0, spread=0.3)]
    assert pool(everyone).points[0, Kind.FORWARD].time_s == 1.5


def test_stages_are_kept_apart_and_blocking_power_is_the_mean_of_all() -> None:
    pooled = pool([rank_status(1, time_s=3.0, blocking_w=40.0), rank_status(0, blocking_w=60.0)])
    times_s = {key: point.time_s for key, point in pooled.points.items()}
    assert times_s == {(0, Kind.FORWARD): 1.0, (1, Kind.FORWARD): 3.0}
    assert pooled.blocking_power_w == 50.0


def test_the_worst_of_what_was_read_back_is_kept() -> None:
    ranks = [rank_status(0, 0, achieved_mhz=990, reasons=4), rank_status(0, 1, achieved_mhz=None, reasons=8)]
    point = pool(ranks).points[0, Kind.FORWARD]
    assert (point.achieved_mhz, point.event_reasons) == (990, 12)


@pytest.mark.parametrize(
    ("words", "fixed_s"),
    [
        pytest.param(
            [rank_status(0, 0, fixed_s={Kind.LOAD: 0.3}), rank_status(0, 1, fixed_s={Kind.LOAD: 0.1})],
            {(0, Kind.LOAD): 0.1},
            id="the shortest of the stage",
        ),
        pytest.param(
            [
                rank_status(0, fixed_s={Kind.STEP: 0.9, Kind.LOAD: 0.2}),
                rank_status(1, fixed_s={Kind.STEP: 0.1}),
            ],
            {(0, Kind.LOAD): 0.2, (0, Kind.STEP): 0.1, (1, Kind.STEP): 0.1},
            id="the step, of all stages",
        ),
        pytest.param(
            # stage 0 waits for stage 1 in the first send, stage 1 for stage 0 in the second
            [
                rank_status(0, transfers_s={SA: (0.9, 0.1), RG: (0.7, 0.3)}),
                rank_status(1, transfers_s={RA: (0.1, 0.8), SG: (0.2, 0.3)}),
            ],
            {(0, SA): 0.1, (1, SG): 0.25},
            id="a transfer, what its later end saw",
        ),
        pytest.param(
            [
                *(rank_status(0, n, transfers_s={SA: (sent_s,)}) for n, sent_s in enumerate((1.0, 4.0))),
                *(rank_status(1, n, transfers_s={RA: (got_s,)}) for n, got_s in enumerate((2.0, 3.0))),
            ],
            {(0, SA): 2.0},
            id="transfers within one replica",
        ),
        pytest.param(
            [rank_status(0, transfers_s={SA: (1.0,)}), rank_status(1)], {}, id="no transfer with one end"
        ),
    ],
)
def test_fixed_times_without_waits(words: list[Measured], fixed_s: Mapping[tuple[int, Kind], float]) -> None:
    assert pool(words).fixed_s == pytest.approx(fixed_s)


@pytest.mark.parametrize(
    ("deviations_s", "pooled_s"), [((0.3, 0.4), 0.125**0.5), ((0.3, None), 0.3), ((None, None), None)]
)
def test_replicas_vary_as_on_average(deviations_s: tuple[float | None, ...], pooled_s: float | None) -> None:
    ranks = [rank_status(0, replica, time_sd_s=one) for replica, one in enumerate(deviations_s)]
    found_s = pool(ranks).points[0, Kind.FORWARD].time_sd_s
    assert found_s == (pooled_s and pytest.approx(pooled_s))


# A sweep there and back: both ways are averaged clock by clock.


def drifting(sweeps: MeasuredSweep, *, first: int) -> int:
    while not sweeps.finished:
        time_s = (1400 / sweeps.clock_mhz) * (1.0 + 0.05 * first)
        points = {(0, Kind.FORWARD): Point(sweeps.clock_mhz, time_s, 100.0 * time_s)}
        sweeps.record(Pooled(points, {}, 60.0, spread=0.3))
        first += 1
    return first


def test_there_and_back_what_grows_steadily_changes_no_clocks_share() -> None:
    there = MeasuredSweep((1400, 1050, 700))
    half = drifting(there, first=0)
    assert there.spread == 0.3
    back = there.back()
    assert back.clock_mhz == 700
    drifting(back, first=half)
    both = there.join(back)
    points = both.points[0, Kind.FORWARD]
    assert [point.clock_mhz for point in points] == [1400, 1050, 700]
    assert [point.time_s / points[0].time_s for point in points] == pytest.approx([1.0, 4 / 3, 2.0])
    assert all(point.time_se_s > 0.02 * point.time_s for point in points[:1]), "what both differ by"
    assert both.finished
    assert len(both.windows) == 3


def test_what_is_refused_on_the_way_back_is_in_neither() -> None:
    there = MeasuredSweep((1400, 1050, 700))
    half = drifting(there, first=0)
    back = there.back()
    back.record(Pooled({(0, Kind.FORWARD): Point(700, 1.0, 9.0)}, {}, 0.0))
    back.record(None)
    assert (back.clock_mhz, back.finished) == (1400, False)
    drifting(back, first=half)
    both = there.join(back)
    assert both.clocks_mhz == (1400, 700)
    assert both.refused_mhz == {1050}
    assert [point.clock_mhz for point in both.points[0, Kind.FORWARD]] == [1400, 700]


def test_a_sweep_goes_on_for_as_long_as_clocks_are_chosen_and_is_bounded_by_what_was_seen() -> None:
    sweep = MeasuredSweep((1000,))
    assert sweep.slower_at(500) == 2.0, "nothing was seen yet"
    keys = (0, Kind.FORWARD), (0, Kind.BACKWARD)
    for factors in ((1.0, 1.0), (1.1, 1.2)):
        points = {key: Point(sweep.clock_mhz, 2.0 * f, 9.0) for key, f in zip(keys, factors, strict=True)}
        sweep.record(Pooled(points, {}, 0.0))
        assert sweep.finished
        sweep.clocks_mhz += (800 if len(sweep.windows) == 1 else 500,)
    assert [point.clock_mhz for point in sweep.points[keys[0]]] == [1000, 800]
    assert sweep.slower_at(800) == pytest.approx(1.2), "the slower of both"
    assert sweep.slower == sweep.slower_at(500) == pytest.approx(1.0 + 0.8), "0.2 of 0.25 there"
