"""Whole iterations are booked when the energy counter has passed them, to the side that they belong to."""

import math
import pickle
import tracemalloc
from unittest.mock import MagicMock

import numpy as np
import pytest

from perseus_ds.device.clock_agenda import RequestCounts
from perseus_ds.profile import CounterTrace, Interval
from perseus_ds.runtime import accounting
from perseus_ds.runtime.accounting import Mode, RankBooks, Sample, Side, Total, as_samples
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.recorder import Iteration
from perseus_ds.schedule import Instruction, Kind, textbook

WATTS = 100.0


class Watched:
    """A counter that has moved every ``step_s`` up to ``until_s``, at constant power."""

    def __init__(self, *, since_s: float = 0.0, step_s: float = 0.1) -> None:
        self.period_s: float | None = step_s
        self.until_s = since_s
        self._since_s, self._step_s = since_s, step_s
        self.forgotten_s = 0.0

    def trace(self, since_s: float) -> CounterTrace:
        steps = int((self.until_s - self._since_s) / self._step_s + 1e-9)
        times = [self._since_s + step * self._step_s for step in range(steps + 1)]
        before = [time for time in times if time <= since_s]
        times = before[-1:] + [time for time in times if time > since_s]
        return CounterTrace(times, [WATTS * time for time in times])

    def forget(self, before_s: float) -> None:
        self.forgotten_s = before_s


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def account(watched: Watched) -> RankBooks:
    return books_of(watched)


def books_of(watch: object) -> RankBooks:
    counts = RequestCounts()
    return RankBooks(watch, sightings=tuple, overrun_share=lambda: 0.0, clock_requests=counts)


def iteration(index: int, start_s: float, end_s: float, *, outside_s: float = 0.0) -> Iteration:
    return Iteration(index, start_s, end_s, (), outside_s=outside_s)


def enter(account: RankBooks, watched: Watched, modes: str, *, length_s: float = 1.0) -> None:
    """Enter iterations in turn: B baseline, P perseus, N neither; the counter runs along."""
    letters = {"B": Mode.BASELINE, "P": Mode.PERSEUS, "N": Mode.NEITHER}
    for index, letter in enumerate(modes):
        watched.until_s = (index + 1) * length_s
        account.add(letters[letter], iteration(index, index * length_s, (index + 1) * length_s))


def energy_j(total: Total) -> float:
    return float(total.samples["iterations"] @ total.samples["energy_j"])


def test_each_side_gets_its_own_iterations(account: RankBooks, watched: Watched) -> None:
    enter(account, watched, "PPPNBBNP", length_s=4.0)
    baseline, perseus = account.totals[0][Mode.BASELINE], account.totals[0][Mode.PERSEUS]
    assert (baseline.iterations, perseus.iterations) == (2, 3)
    assert perseus.samples["first"].tolist() == [0, 1, 2]
    assert energy_j(baseline) == pytest.approx(8.0 * WATTS)
    assert energy_j(perseus) == pytest.approx(12.0 * WATTS)


def test_nothing_is_booked_before_the_counter_has_passed_it(account: RankBooks, watched: Watched) -> None:
    account.add(Mode.PERSEUS, iteration(0, 0.0, 1.0))
    watched.until_s = 0.9
    account.add(Mode.PERSEUS, iteration(1, 1.0, 2.0))
    assert account.totals[0][Mode.PERSEUS].iterations == 0
    watched.until_s = 2.1
    account.add(Mode.NEITHER, iteration(2, 2.0, 3.0))
    account.add(Mode.NEITHER, iteration(3, 3.0, 4.0))
    assert account.totals[0][Mode.PERSEUS].iterations == 2


def test_iterations_shorter_than_the_period_are_booked_together(account: RankBooks, watched: Watched) -> None:
    enter(account, watched, "P" * 220, length_s=0.03)
    perseus = account.totals[0][Mode.PERSEUS]
    assert perseus.iterations >= 200
    assert {*perseus.samples["iterations"]} <= {100, 101}, "three seconds each: thirty periods"
    assert perseus.samples["time_s"] == pytest.approx(0.03)
    assert perseus.samples["energy_j"] == pytest.approx(0.03 * WATTS)


def test_what_the_counter_missed_is_lost_and_holds_up_nothing() -> None:
    """The watch starts within the first iteration; without a counter nothing is booked."""
    for period_s, booked in ((0.1, 3), (None, 0)):
        watched = Watched(since_s=0.5)
        watched.period_s = period_s
        account = books_of(watched)
        enter(account, watched, "BNPPPN")
        assert [account.totals[0][mode].iterations for mode in (Mode.BASELINE, Mode.PERSEUS)] == [0, booked]


def test_the_hosts_time_between_iterations_is_booked_apart(account: RankBooks, watched: Watched) -> None:
    watched.until_s = 100.0
    account.add(Mode.PERSEUS, iteration(0, 0.0, 2.0))
    account.add(Mode.PERSEUS, iteration(1, 7.0, 9.0, outside_s=5.0))
    account.add(Mode.PERSEUS, Iteration(2, 20.0, 22.0, (), own_s=0.5, outside_s=11.0))
    for index in (3, 4):
        account.add(Mode.NEITHER, iteration(index, 16.0 + 2.0 * index, 18.0 + 2.0 * index))
    samples = account.totals[0][Mode.PERSEUS].samples
    assert samples["time_s"].tolist() == [2.0, 2.0, 2.5]
    assert samples["energy_j"] == pytest.approx(WATTS * samples["time_s"])
    assert (account.outside.time_s, account.outside.energy_j) == (16.0, pytest.approx(16.0 * WATTS))


@pytest.mark.parametrize(
    ("modes", "until_s"), [("PPP", 12.0), ("PNN", 4.0), ("BBB", 12.0), ("NNN", 0.0), ("NNNPPP", 24.0)]
)
def test_booked_ones_are_forgotten(account: RankBooks, watched: Watched, modes: str, until_s: float) -> None:
    """None of them waits for another: nothing is open, and a job of hours kept all that it had read.

    Those that count for neither may be a profile's window, which reads the trace when it is full.
    """
    enter(account, watched, modes, length_s=4.0)
    watched.until_s = 4.0 * len(modes) + 0.1
    account.add(Mode.NEITHER, iteration(len(modes), watched.until_s, watched.until_s + 4.0))
    assert watched.forgotten_s == pytest.approx(until_s)


def test_the_last_thousand_samples_travel_as_one_array() -> None:
    total = Total()
    for first in range(1203):
        total.add(Sample(3 * first, 3, 1.0 / (first + 1), 250.5))
    packed = pickle.dumps(total)
    assert len(packed) < 1000 * 40 + 1000
    found = pickle.loads(packed)
    assert found.iterations == 3 * 1203
    assert found.samples["first"].tolist() == list(range(3 * 203, 3 * 1203, 3))


# A mean that hiccups do not move, and an error that covers the truth as often as it says.


def test_the_mean_and_the_error_of_a_few_values_by_hand() -> None:
    """Of eight the middle four are 3 to 6; drawn in, they are 3 3 3 4 5 6 6 6, 14 squared about 4.5."""
    found = accounting.robust_mean([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    assert (found.mean, found.freedom) == (4.5, 3)
    assert found.se == pytest.approx(math.sqrt(14.0 / (4 * 3)))
    single = accounting.robust_mean([2.0])
    assert (single.mean, single.se, single.freedom) == (2.0, math.inf, 0)
    assert accounting.robust_mean([]).mean == 0.0


# How many measurements share an error, by hand.

PERIOD_S = 0.1
BLOCKS_OF_FOUR = np.array([True, False, False, False] * 2)


@pytest.mark.parametrize(
    ("lasts_s", "period_s", "shared"),
    [
        ([4.0] * 8, PERIOD_S, 4.0),  # 40 periods: all four of a block begin at one moment
        ([4.05] * 8, PERIOD_S, 1.0),  # every other one at the opposite moment: 1 - 0.5 + 1 - 0.5
        ([4.025] * 8, PERIOD_S, 1.0),  # at four moments, which cancel: a quarter, and no more is counted on
        ([4.01] * 2, PERIOD_S, 1.46),  # 0.1 periods apart: 1 - 0.6 + 0.06 = 0.46 of the error is shared
        ([4.0] * 8, None, 1.0),
        ([], PERIOD_S, 1.0),
    ],
)
def test_those_of_a_moment_count_as_one(lasts_s: list[float], period_s: float | None, shared: float) -> None:
    begins = BLOCKS_OF_FOUR[: len(lasts_s)]
    assert accounting.alike(np.array(lasts_s), begins, period_s) == pytest.approx(shared)


def test_a_thousand_measurements_are_held_against_each_other_in_little_memory() -> None:
    """Rank 0 does that for each rank of the job, while all train: a table of all pairs takes 8 MB."""
    lasts_s = np.random.default_rng(0).uniform(4.0, 4.01, 1000)
    begins = np.arange(1000) == 0
    moments = np.concatenate([[0.0], np.cumsum(lasts_s[:-1])]) / PERIOD_S
    apart = np.abs(moments[:, None] - moments) % 1.0
    tracemalloc.start()
    try:
        found = accounting.alike(lasts_s, begins, PERIOD_S)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == pytest.approx(max(1.0, (1.0 - 6.0 * apart + 6.0 * apart**2).sum() / 1000))
    assert most_bytes < 1 << 20


def total(energies_j: list[float], lasts_s: float) -> Total:
    """Two audits of four iterations each."""
    firsts = [10, 11, 12, 13, 70, 71, 72, 73]
    samples = (Sample(first, 1, lasts_s, one) for first, one in zip(firsts, energies_j, strict=True))
    return Total(8, as_samples(samples))


def test_two_audits_that_are_wrong_alike_are_two_measurements() -> None:
    """9 and 11 J: 10 +- 1 J, as of two values; of eight that were by chance it would be +- 0.38."""
    energies_j = [9.0] * 4 + [11.0] * 4
    at_one, apart = (Side.of([total(energies_j, s)], [PERIOD_S]).averages() for s in (4.0, 4.05))
    assert (at_one.energy_se_j, at_one.freedom) == pytest.approx((1.0, 1.0))
    assert at_one.time_freedom == pytest.approx(3.0)  # of time the middle half is kept: no counter's
    assert apart.energy_se_j == pytest.approx((8 / (4 * 3)) ** 0.5)


def test_one_audit_that_may_be_wrong_as_a_whole_states_no_error() -> None:
    samples = as_samples(Sample(first, 1, 4.0, 9.0) for first in range(4))
    assert Side.of([Total(4, samples)], [PERIOD_S]).averages().energy_se_j is None


# What one rank enters in its books: each iteration by what it counts for, once the device has passed it.

JOB = Job(0, 1, 0, 0, textbook("1f1b", stages=1, microbatches=1), {})


def ran_iteration(index: int, *, lasts_s: float, resumed: bool = False, skipped: bool = False) -> Iteration:
    row = (Interval(Instruction(0, Kind.FORWARD, 0), 0.0, lasts_s),)
    return Iteration(index, 0.0, lasts_s, row, resumed=resumed, microbatches=1, skipped=skipped)


def books(*read_c: float) -> RankBooks:
    watch = MagicMock(watching=False, period_s=None, error=None)
    left_c = iter(read_c)
    watch.temperatures.mean_c.side_effect = lambda *_: next(left_c, None)
    return books_of(watch)


def test_what_ran_while_control_was_lost_counts_for_neither_side() -> None:
    """Nor what the device had not passed by then."""
    own = books()
    own.enter(0, Mode.PERSEUS, [], known=True)
    own.enter(1, Mode.PERSEUS, [ran_iteration(0, lasts_s=5.0), ran_iteration(1, lasts_s=5.0)], known=False)
    assert own.report(JOB).durations_s[Mode.PERSEUS] == []
    own.enter(2, Mode.PERSEUS, [ran_iteration(2, lasts_s=1.0)], known=True)
    assert own.report(JOB).durations_s[Mode.PERSEUS] == [1.0]


def test_what_follows_something_else_or_skipped_its_step_counts_for_neither_side() -> None:
    own = books()
    for index, why in enumerate(({"resumed": True}, {}, {"skipped": True})):
        one = ran_iteration(index, lasts_s=5.0 if why else 1.0, **why)
        own.enter(index, Mode.BASELINE, [one], known=True)
    assert (own.report(JOB).durations_s[Mode.BASELINE], own.report(JOB).skipped) == ([1.0], 1)
    own.enter(3, Mode.PERSEUS, [ran_iteration(3, lasts_s=2.0)], known=True)
    own.forget_plan(JOB)
    assert own.report(JOB).durations_s == {Mode.BASELINE: [1.0], Mode.PERSEUS: []}


def test_each_sides_temperature_is_the_mean_over_its_iterations() -> None:
    own = books(50.0, 54.0, 99.0, 60.0)
    for index, mode in enumerate((Mode.BASELINE, Mode.BASELINE, Mode.NEITHER, Mode.PERSEUS)):
        own.enter(index, mode, [ran_iteration(index, lasts_s=1.0)], known=True)
    assert own.report(JOB).temperature_c == {Mode.BASELINE: 52.0, Mode.NEITHER: 99.0, Mode.PERSEUS: 60.0}
    own.forget_plan(JOB)
    assert Mode.PERSEUS not in own.report(JOB).temperature_c


def test_mean_durations_are_kept_apart_and_half_iterations_left_out() -> None:
    own = books()
    for index, seconds in enumerate([(1.0, 2.0), (3.0, 4.0), (9.0,)]):
        rows = [Interval(Instruction(0, Kind.FORWARD, 0), 0.0, lasts_s) for lasts_s in seconds]
        load = Interval(Instruction(0, Kind.LOAD, 0), 0.0, 9.0)
        one = Iteration(index, 0.0, 9.0, (load, *rows), microbatches=1)
        own.enter(index, Mode.PERSEUS, [one], known=True)
    assert own.report(JOB).durations_s == {Mode.BASELINE: [], Mode.PERSEUS: [2.0, 3.0]}


# A saving compares batches of one size, whatever batches fell on either side.


def test_both_sides_are_brought_to_the_mean_of_all_sizes() -> None:
    """Sizes 1 and 3, four samples each: both sides stand at 2, where time and energy are twice those of 1."""

    def of(energy_j: float, *sizes: float) -> Side:
        samples = as_samples(Sample(i, 1, n * 1.0, n * energy_j, n) for i, n in enumerate(sizes * 2))
        return Side.of([Total(4, samples)])

    sides = [of(100.0, 0.9, 1.1), of(80.0, 2.7, 3.3)]
    before, after = (side.averages() for side in accounting.at_one_size(sides))
    assert (before.iteration_time_s, after.iteration_time_s) == pytest.approx((2.0, 2.0))
    assert (before.energy_j, after.energy_j) == pytest.approx((200.0, 160.0))
    for size in (1.0, 0.0):
        alike = [of(100.0, size, size), of(80.0, size, size)]
        assert accounting.at_one_size(alike) == alike, "of one size, or of sizes that nobody counts"


def test_a_job_takes_as_long_as_the_replica_with_the_longest_batch() -> None:
    """Both sides train as much in all, but where the plan runs one replica has most of it."""
    random = np.random.default_rng(3)

    def of(share: float, time: float) -> Side:
        ranks: list[list[Sample]] = [[], []]
        for i in range(12):
            whole, uneven = random.uniform(1.8, 2.2), share * random.uniform(0.95, 1.05)
            sizes = whole * uneven, whole * (1.0 - uneven)
            for row, size in zip(ranks, sizes, strict=True):
                row.append(Sample(i, 1, time * max(sizes), 100.0 * size, size))
        return Side.of([Total(12, as_samples(row)) for row in ranks])

    raw = [of(0.55, 1.0), of(0.7, 1.01)]
    assert raw[1].averages().iteration_time_s / raw[0].averages().iteration_time_s > 1.2
    before, after = (one.averages() for one in accounting.at_one_size(raw))
    assert after.iteration_time_s / before.iteration_time_s == pytest.approx(1.01, abs=0.005)
    assert after.energy_j / before.energy_j == pytest.approx(1.0, abs=0.02)


def test_ranks_that_joined_iterations_differently_are_compared_where_both_begin() -> None:
    """Rank 0 joins three at a time; rank 1 joined four once and three then: they begin together twice."""
    thirds = as_samples(Sample(first, 3, 1.0, 100.0) for first in (0, 3, 6, 20, 23))
    others = as_samples(Sample(first, count, 1.1, 50.0) for first, count in ((0, 4), (4, 3), (7, 3), (20, 3)))
    found = Side.of([Total(15, thirds), Total(13, others)])
    measured = found.averages()
    assert (measured.iteration_time_s, measured.energy_j, measured.iterations) == (1.1, 150.0, 13)
    assert len(found.time_s) == 2
    assert Side.of([Total(15, thirds), Total()]) is None
