"""Every rank's report on one clock becomes one, and a sweep's window its loads and clocks."""

from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import MagicMock

import pytest

from perseus_ds.device.gpu import Achieved, EventReason
from perseus_ds.errors import IncompleteProfileError, UnmeasurableError
from perseus_ds.profile import Interval, Point
from perseus_ds.profile.estimate import Estimate
from perseus_ds.profile.loads import LoadFit
from perseus_ds.runtime.pooling import Measured, MeasuredSweep, Pooled, pool
from perseus_ds.runtime.recorder import Iteration
from perseus_ds.runtime.window import WindowLoads, held_clocks, refuse_foreign_clock, same_clock
from perseus_ds.schedule import Instruction, Kind, Load

SA, RA, SG, RG = Kind.SEND_ACTIVATION, Kind.RECV_ACTIVATION, Kind.SEND_GRAD, Kind.RECV_GRAD


def rank_status(
    stage: int,
    replica: int = 0,
    *,
    time_s: float = 1.0,
    blocking_w: float = 50.0,
    fixed_s: Mapping[Kind, float | tuple[float, ...]] = {},
    achieved_mhz: int | None = 1000,
    reasons: int = 0,
    spread: float = 0.0,
    time_sd_s: float | None = None,
) -> Measured:
    """A rank's report; of transfers there is a time for each."""
    point = Point(1000, time_s, 100 * time_s, 0.3, 4.0, 8, achieved_mhz, reasons, time_sd_s)
    fixed = {(stage, kind): one for kind, one in fixed_s.items() if not kind.is_transfer}
    transfers = {(stage, kind): one for kind, one in fixed_s.items() if kind.is_transfer}
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


Seen = tuple[int, int, Mapping[Kind, float | tuple[float, ...]]]
"""Stage and replica of a rank, and its fixed times."""


@pytest.mark.parametrize(
    ("seen", "fixed_s"),
    [
        ([(0, 0, {Kind.LOAD: 0.3}), (0, 1, {Kind.LOAD: 0.1})], {(0, Kind.LOAD): 0.1}),
        (
            [(0, 0, {Kind.STEP: 0.9, Kind.LOAD: 0.2}), (1, 0, {Kind.STEP: 0.1})],
            {(0, Kind.LOAD): 0.2, (0, Kind.STEP): 0.1, (1, Kind.STEP): 0.1},
        ),
        (  # stage 0 waits for stage 1 in the first send, stage 1 for stage 0 in the second
            [(0, 0, {SA: (0.9, 0.1), RG: (0.7, 0.3)}), (1, 0, {RA: (0.1, 0.8), SG: (0.2, 0.3)})],
            {(0, SA): 0.1, (1, SG): 0.25},
        ),
        (
            [(0, 0, {SA: (1.0,)}), (0, 1, {SA: (4.0,)}), (1, 0, {RA: (2.0,)}), (1, 1, {RA: (3.0,)})],
            {(0, SA): 2.0},
        ),
        ([(0, 0, {SA: (1.0,)}), (1, 0, {})], {}),
    ],
    ids=[
        *("the shortest of the stage", "the step, of all stages", "a transfer, what its later end saw"),
        *("transfers within one replica", "no transfer with one end"),
    ],
)
def test_fixed_times_without_waits(seen: list[Seen], fixed_s: Mapping[tuple[int, Kind], float]) -> None:
    words = [rank_status(stage, replica, fixed_s=own) for stage, replica, own in seen]
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


# A sweep's window: loads that all stages share, and clocks that did not hold.

COUNTED = [Load.of_lengths(lengths) for lengths in ([3.0, 4.0], [10.0], [2.0, 2.0], [5.0])]


def window(stage: int, loads: Sequence[Load | None]) -> list[Iteration]:
    """Iterations 7 and 8 of two microbatches each."""
    kinds, step = (Kind.FORWARD, Kind.BACKWARD), Interval(Instruction(stage, Kind.STEP, 0), 2.0, 3.0)
    rows = []
    for n in range(2):
        computed = [(Instruction(stage, kind, m), loads[2 * n + m]) for m in range(2) for kind in kinds]
        intervals = (Interval(instruction, 0.0, 1.0, load) for instruction, load in computed)
        rows.append(Iteration(7 + n, 0.0, 3.0, (*intervals, step)))
    return rows


class Ranks:
    """Every rank's context, and what each gave to the gather."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def context(self, replica: int) -> MagicMock:
        context = MagicMock()
        context.job.replica = replica
        context.channel.gather.side_effect = lambda mine: [*self.given, mine]
        return context

    def first_stage(self, replica: int, loads: Sequence[Load | None]) -> None:
        context = self.context(replica)
        WindowLoads(context).share(window(0, loads))
        self.given.append(context.channel.gather.call_args.args[0])


def seen(iterations: Sequence[Iteration], kind: Kind) -> list[Load | None]:
    return [i.load for one in iterations for i in one.intervals if i.kind is kind]


def test_a_later_stage_uses_what_the_first_one_counted() -> None:
    ranks = Ranks()
    ranks.first_stage(1, [Load(99.0, 1.0)] * 4)
    ranks.first_stage(0, COUNTED)
    told, means = WindowLoads(ranks.context(0)).share(window(1, [Load(640.0, 640.0)] * 4))
    assert seen(told, Kind.BACKWARD) == COUNTED
    assert seen(told, Kind.STEP) == [None] * 2
    assert means == {1: Load.mean_of([Load(99.0, 1.0)] * 4 + COUNTED)}, "one mean for all replicas"


def test_loads_that_are_all_alike_are_shared_as_one() -> None:
    ranks = Ranks()
    ranks.first_stage(0, [Load(99.0, 1.0)] * 4)
    assert len(ranks.given[0].loads) == 1
    told, _ = WindowLoads(ranks.context(0)).share(window(1, [None] * 4))
    assert seen(told, Kind.BACKWARD) == [Load(99.0, 1.0)] * 4


def test_a_window_of_one_load_is_taken_longer_where_there_are_others() -> None:
    """It would not show how durations follow loads; where longer windows do not either, it stands."""
    loads = WindowLoads(Ranks().context(0))
    large, small = (window(0, [Load(size)] * 4) for size in (99.0, 33.0))
    loads.share(large)
    loads.share(large)
    for _ in range(3):
        with pytest.raises(IncompleteProfileError, match="one load"):
            loads.share(small)
    loads.share(small)
    both = WindowLoads(Ranks().context(0))
    both.share(large)
    _, means = both.share([*small, *large])
    assert means == {0: Load(99.0)}, "brought to the first window's"


def test_where_no_first_stage_counts_each_rank_keeps_what_it_saw() -> None:
    ranks = Ranks()
    ranks.first_stage(0, [None] * 4)
    shape = [Load(10.0), Load(30.0)] * 2
    told, means = WindowLoads(ranks.context(0)).share(window(1, shape))
    assert told == window(1, shape)
    assert means == {1: Load(20.0)}


def test_loads_that_explain_nothing_are_said_with_the_figure() -> None:
    def said(fits: dict[tuple[int, Kind], LoadFit]) -> list[str]:
        WindowLoads(context := MagicMock()).log_fits(fits)
        return [call.args[1] for call in context.log.event.call_args_list]

    nothing, much = (
        said({(0, Kind.FORWARD): LoadFit(Load(9.0), 0.9, 0.1, 0.0, 0.2, r2, 50)}) for r2 in (0.07, 0.93)
    )
    assert " 7 %" in nothing[0]
    assert [part for part in (" 93 %", " 20.0 %") if part not in much[0]] == []
    assert said({}) == []


# Clocks that do not hold under load are in no profile.

CLOCKS_MHZ = (1965, 1800, 1560, 1400)


def clock_window(clock_mhz: int, *seen_mhz: int | None) -> Pooled:
    kinds = (Kind.FORWARD, Kind.BACKWARD)
    points = {
        (0, kind): Point(clock_mhz, 0.1, 40.0, 0.0, 0.0, 10, achieved_mhz=one)
        for kind, one in zip(kinds, seen_mhz, strict=True)
    }
    return Pooled(points, {}, 80.0)


def test_what_falls_under_load_is_dropped_but_for_the_highest() -> None:
    """A B200 at 1965 MHz runs at 1580 after 5 ms of load, with no reason given."""
    seen = [(1580, 1575), (1590, 1580), (1560, 1545), (1400, 1400)]
    windows = [clock_window(clock, *mhz) for clock, mhz in zip(CLOCKS_MHZ, seen, strict=True)]
    assert held_clocks(CLOCKS_MHZ, windows) == {1965, 1560, 1400}


def test_one_computation_that_loses_it_is_enough_and_nobody_looking_is_not() -> None:
    seen = {1965: (1965, 1965), 1800: (1800, 1600), 1560: (None, 1560)}
    windows = [clock_window(clock, *mhz) for clock, mhz in seen.items()]
    assert held_clocks(CLOCKS_MHZ, windows) == {1965, 1560}


def test_two_windows_of_one_clock_are_alike_where_both_reached_it() -> None:
    warm = clock_window(1965, 1965, 1965)
    assert same_clock(warm, clock_window(1965, 1950, None))
    assert not same_clock(warm, clock_window(1965, 1965, 1005))
    assert not same_clock(clock_window(1965, 1005, 1965), warm)


def looks(*clocks_mhz: int, reasons: EventReason = EventReason.NONE) -> list[Achieved]:
    return [Achieved(mhz, reasons) for mhz in clocks_mhz]


@pytest.mark.parametrize("seen_mhz", [(1000, 1005), (1410, 1410)], ids=["below what was held", "above"])
def test_a_clock_that_no_look_finds_is_somebody_elses(seen_mhz: tuple[int, ...]) -> None:
    with pytest.raises(UnmeasurableError, match="somebody else"):
        refuse_foreign_clock(1260, looks(*seen_mhz), held_mhz=1410)


def test_a_reason_an_idle_look_or_a_clock_that_was_never_held_accuses_nobody() -> None:
    refuse_foreign_clock(1260, looks(1000, reasons=EventReason.SW_POWER_CAP), held_mhz=1410)
    refuse_foreign_clock(1260, looks(210, 1260, 210), held_mhz=1410)
    refuse_foreign_clock(1965, looks(1580, 1590), held_mhz=0)
    refuse_foreign_clock(0, looks(1410), held_mhz=900)
