"""A sweep's window: loads that all stages share, and clocks that did not hold."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import MagicMock

import pytest

from perseus_ds.device.gpu import Achieved, EventReason
from perseus_ds.errors import IncompleteProfileError, UnmeasurableError
from perseus_ds.profile import Interval, LoadFit, Point
from perseus_ds.runtime.pooling import Pooled
from perseus_ds.runtime.recorder import Iteration
from perseus_ds.runtime.window import WindowLoads, held_alone, held_clocks, same_clock
from perseus_ds.schedule import Instruction, Kind, Load, mean_load

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
    assert means == {1: mean_load([Load(99.0, 1.0)] * 4 + COUNTED)}, "one mean for all replicas"


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
        held_alone(1260, looks(*seen_mhz), held_mhz=1410)


def test_a_reason_an_idle_look_or_a_clock_that_was_never_held_accuses_nobody() -> None:
    assert held_alone(1260, looks(1000, reasons=EventReason.SW_POWER_CAP), held_mhz=1410) == 1410
    assert held_alone(1260, looks(210, 1260, 210), held_mhz=1410) == 1410
    assert held_alone(1965, looks(1580, 1590), held_mhz=0) == 0
    assert held_alone(1260, looks(1260, 1245), held_mhz=0) == 1260
    assert held_alone(0, looks(1410), held_mhz=900) == 900
