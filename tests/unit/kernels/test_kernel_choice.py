"""Kernels whose true cost is known at every pair, and measurements of them with noise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.device.clock_change import DEFAULT_PAIR, ClockPair
from perseus_ds.errors import IncompleteProfileError
from perseus_ds.kernels.choose import (
    ChosenPairs,
    Goal,
    Level,
    choose,
    cost_table,
    launch_costs,
    predict,
    second_costs,
    smooth,
    validate_on_second_sample,
)
from perseus_ds.kernels.plan import kernel_plan
from perseus_ds.kernels.profile import KernelPoint, KernelProfile, MeasuredKernel
from perseus_ds.kernels.trace import KernelClass, KernelTrace, LaunchSequence
from perseus_ds.schedule import Kind

PAIRS = (
    DEFAULT_PAIR,
    *(ClockPair(memory, clock) for memory in (None, 9251, 5001, 810) for clock in range(1980, 600, -30)),
    ClockPair(5001, None),
    ClockPair(810, None),
)
NAMES = "gemm", "softmax", "gelu", "permute"
KERNELS = tuple(KernelClass(name, ((size, size),)) for name in NAMES for size in range(8, 14))


def true_cost(kernel: KernelClass, pair: ClockPair) -> tuple[float, float]:
    """Time and energy by a small roofline: products follow the core clock, the others the memory clock."""
    clock = (pair.clock_mhz or 1995) / 1995
    memory = (pair.memory_mhz or 9501) / 9501
    bound = {"gemm": 0.05, "softmax": 0.8, "gelu": 0.95, "permute": 0.6}[kernel.name]
    time = 1e-3 * kernel.shapes[0][0] * max((1 - bound) / clock + 0.3 * bound, bound / memory)
    power = 80 + 60 * memory + 160 * clock**2.5 * (1 - 0.4 * bound)
    return time, power * time


def trace_of(kernels: Sequence[KernelClass] = KERNELS) -> KernelTrace:
    half = len(kernels) // 2
    halves = (Kind.FORWARD, range(half)), (Kind.BACKWARD, range(half, len(kernels)))
    sequences = tuple(LaunchSequence(0, kind, tuple(own) * 3, times=4) for kind, own in halves)
    return KernelTrace(tuple(kernels), sequences)


def measured(
    random: np.random.Generator, noise: float, wanted: Mapping[KernelClass, Sequence[ClockPair]] | None = None
) -> dict[KernelClass, tuple[KernelPoint, ...]]:
    """One measurement of every kernel at every pair, or at those wanted."""

    def point(kernel: KernelClass, pair: ClockPair) -> KernelPoint:
        time, energy = true_cost(kernel, pair)
        a, b = 1 + noise * random.standard_normal(2)
        return KernelPoint(pair, time * a, energy * b, time * noise, energy * noise)

    pairs = dict.fromkeys(KERNELS, PAIRS) if wanted is None else wanted
    return {kernel: tuple(point(kernel, pair) for pair in pairs[kernel]) for kernel in KERNELS}


def exact() -> KernelProfile:
    return profile_of(measured(np.random.default_rng(0), 0.0))


def profile_of(
    first: Mapping[KernelClass, tuple[KernelPoint, ...]],
    second: Mapping[KernelClass, tuple[KernelPoint, ...]] | None = None,
) -> KernelProfile:
    again = second or {}
    return KernelProfile(tuple(MeasuredKernel(one, own, again.get(one, ())) for one, own in first.items()))


def change_pct(chosen: ChosenPairs) -> tuple[float, float]:
    """Change of time and energy by the numbers that the choice was made from."""
    saving = predict(chosen)
    return saving.time_pct, saving.energy_pct


SEEDS = 30
NOISE = 0.01


def chosen_from(profile: KernelProfile, level: Level = Level.KERNEL, goal: Goal = Goal()) -> ChosenPairs:  # noqa: B008
    trace = trace_of()
    return choose(cost_table(launch_costs(profile, trace), trace, level), goal)


def test_a_finer_level_saves_more() -> None:
    kernel, instruction, whole = (change_pct(chosen_from(exact(), level))[1] for level in Level)
    assert kernel < instruction <= whole <= 0


def test_a_class_that_cannot_be_replayed_stays_at_the_default_pair_and_is_named() -> None:
    odd, trace = KernelClass("odd"), trace_of()
    forward, backward = trace.sequences
    duration_s = (1e-3,) * len(forward.kernels) + (0.5,)
    forward = replace(forward, kernels=(*forward.kernels, len(trace.classes)), duration_s=duration_s)
    trace = replace(trace, classes=(*trace.classes, odd), sequences=(forward, backward))
    assert kernel_plan(exact(), trace, latencies_s=()).left_out == ("odd(): not measured",)
    table = cost_table(launch_costs(exact(), trace), trace)
    row = table.rows.index(str(odd))
    assert choose(table, Goal(1.0)).pairs[row] == DEFAULT_PAIR
    assert table.time_s[row, 0] == 0.5 * forward.times


def test_nothing_measured_is_refused() -> None:
    other = profile_of({KernelClass("other"): (KernelPoint(DEFAULT_PAIR, 1, 1),)})
    with pytest.raises(IncompleteProfileError, match="trace"):
        launch_costs(other, trace_of())


def achieved_pct(pairs: tuple[ClockPair, ...]) -> tuple[float, float]:
    """What a choice truly changes in time and energy; launches are alike for all kernels."""
    default = np.sum([true_cost(kernel, DEFAULT_PAIR) for kernel in KERNELS], axis=0)
    chosen = np.sum([true_cost(kernel, pair) for kernel, pair in zip(KERNELS, pairs, strict=True)], axis=0)
    time_pct, energy_pct = 100 * (chosen / default - 1)
    return float(time_pct), float(energy_pct)


@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_exact_measurements_predict_what_is_achieved(tau: float) -> None:
    chosen = chosen_from(exact(), goal=Goal(tau))
    assert change_pct(chosen) == pytest.approx(achieved_pct(chosen.pairs))


@pytest.mark.slow
@pytest.mark.thorough
def test_predicted_is_achieved_and_smoothing_keeps_the_time_over_thirty_seeds() -> None:
    trace, honest, naive, smoothed, lucky = trace_of(), [], [], [], []
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        first = measured(random, NOISE)
        chosen, minima = (chosen_from(one) for one in (smooth(profile_of(first)), profile_of(first)))
        again = {one: tuple({DEFAULT_PAIR, pair}) for one, pair in zip(KERNELS, chosen.pairs, strict=True)}
        costs = second_costs(profile_of(first, measured(random, NOISE, again)), trace)
        confirmed = validate_on_second_sample(chosen, *(cost_table(one, trace) for one in costs))
        smoothed.append(achieved_pct(chosen.pairs))
        lucky.append(achieved_pct(minima.pairs))
        honest.append(confirmed.energy_pct - smoothed[-1][1])
        naive.append(change_pct(minima)[1] - lucky[-1][1])
    assert abs(np.mean(honest)) < min(0.3, 3 * np.std(honest) / np.sqrt(SEEDS))
    assert np.mean(naive) < -0.5, "choosing minima promises more than there is: else this shows nothing"
    smooth_time, smooth_energy = np.mean(smoothed, axis=0)
    lucky_time, lucky_energy = np.mean(lucky, axis=0)
    assert smooth_time < lucky_time / 2
    assert smooth_time + smooth_energy < lucky_time + lucky_energy, "a percent of time buys one of energy"


def test_noise_is_taken_out_of_what_no_clock_changes() -> None:
    noisy = 5.0 * (1 + NOISE * np.random.default_rng(1).standard_normal(len(PAIRS)))
    points = tuple(
        KernelPoint(pair, value, 1.0, 5.0 * NOISE, NOISE) for pair, value in zip(PAIRS, noisy, strict=True)
    )
    smoothed = smooth(profile_of({KERNELS[0]: points})).measured[0].first
    assert np.std([point.time_s for point in smoothed]) < np.std(noisy) / 2


def test_smoothing_leaves_exact_measurements_alone_and_without_a_second_nothing_is_confirmed() -> None:
    assert smooth(exact()) == exact()
    trace = trace_of()
    second, spread = (cost_table(costs, trace) for costs in second_costs(exact(), trace))
    assert validate_on_second_sample(chosen_from(exact()), second, spread) is None
