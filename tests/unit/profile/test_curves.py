"""Points drawn to their curves: closer to the truth than measured, as far off as they say, and monotone."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from perseus_ds.device.simulated.models import model_named
from perseus_ds.device.simulated.physics import Work, duration_s, energy_j
from perseus_ds.profile import Point, Profile, smooth
from perseus_ds.profile.curves import (
    UNKNOWN,
    MeasuredCurve,
    fit_curves,
    isotonic_fit,
    monotone,
    posterior,
    power_basis,
    time_basis,
)
from perseus_ds.schedule import Kind

MODELS = ("a100-sxm4-80gb", "a100-pcie-80gb", "a40", "h100-sxm", "h200")
WEIGHTS = (1.05, 1.0, 1.0, 1.12)
WORKS = {Kind.FORWARD: Work(0.05, 0.1, 0.8), Kind.BACKWARD: Work(0.1, 0.2, 0.95)}
TIME, ENERGY = 0.01, 0.02
SEEDS = range(3)


def true_profile(model: str, clocks: int) -> Profile:
    """What a simulated GPU takes for four stages, the middle ones alike, at clocks down to half."""
    gpu = model_named(model)
    useful = [mhz for mhz in gpu.clocks_mhz if mhz >= 0.5 * gpu.max_clock_mhz]
    grid = [useful[round(at)] for at in np.linspace(0, len(useful) - 1, clocks)]
    works = {(stage, kind): WORKS[kind].times(own) for stage, own in enumerate(WEIGHTS) for kind in WORKS}
    return Profile(
        {
            key: tuple(Point(mhz, duration_s(gpu, mhz, own), energy_j(gpu, mhz, own)) for mhz in grid)
            for key, own in works.items()
        }
    )


def measured(
    true: Profile, seed: int, *, told: bool = True, time: float = TIME, energy: float = ENERGY
) -> Profile:
    """Every entry is off by itself; with ``told`` the profile states by how much."""
    draw = np.random.default_rng(seed)

    def wrong(point: Point) -> Point:
        time_s = point.time_s * (1.0 + time * float(draw.standard_normal()))
        energy_j = point.energy_j * (1.0 + energy * float(draw.standard_normal()))
        errors = {"time_se_s": time * point.time_s, "energy_se_j": energy * point.energy_j} if told else {}
        return replace(point, time_s=time_s, energy_j=energy_j, **errors)

    return replace(true, points={key: tuple(map(wrong, own)) for key, own in true.points.items()})


def off(found: Profile, true: Profile) -> NDArray[np.float64]:
    """By what share times and energies are off the truth. Shape: [2, points]."""
    seen, real = (
        np.array([[point.time_s, point.energy_j] for key in true.points for point in one.of(*key)])
        for one in (found, true)
    )
    return (seen / real - 1.0).T


def stated(found: Profile) -> NDArray[np.float64]:
    """The standard errors that a profile states, as shares. Shape: [2, points]."""
    points = [point for key in found.points for point in found.of(*key)]
    return np.array([[p.time_se_s / p.time_s, p.energy_se_j / p.energy_j] for p in points]).T


@pytest.mark.thorough
@pytest.mark.parametrize(("model", "told"), [*((model, True) for model in MODELS), ("a40", False)])
def test_points_come_closer_to_the_truth_and_state_how_close(model: str, *, told: bool) -> None:
    true = true_profile(model, 12)
    found = [smooth(measured(true, seed, told=told), scatter=True) for seed in SEEDS]
    errors = np.concatenate([off(one, true) for one in found], axis=1)
    within = np.abs(errors) <= 1.96 * np.concatenate([stated(one) for one in found], axis=1)
    assert np.all(np.abs(errors).mean(axis=1) <= [0.005, 0.012])
    assert np.all(within.mean(axis=1) >= 0.85), "24 curves: their levels are few"


def test_an_exact_profile_stays_what_it_is_and_so_do_three_clocks_which_are_no_curve() -> None:
    for clocks in (3, 12, 38):
        true = true_profile("a40", clocks)
        assert smooth(true, scatter=True) is true
    few = measured(true_profile("a40", 3), 0)
    assert smooth(few) is few


def test_a_true_departure_from_the_curve_survives_small_errors() -> None:
    """A clock that takes 3 % longer than its neighbours, known to a tenth of a percent."""
    true = true_profile("h100-sxm", 12)
    key = (1, Kind.BACKWARD)
    points = list(true.of(*key))
    points[5] = replace(points[5], time_s=1.03 * points[5].time_s)
    odd = replace(true, points={**true.points, key: tuple(points)})
    found = smooth(measured(odd, 3, time=0.001, energy=0.001))
    assert found.of(*key)[5].time_s == pytest.approx(points[5].time_s, rel=0.005)


def level_of_first(sizes: list[float], shares: list[float], seed: int) -> tuple[float, float]:
    """Level of the first stage's curve, whose truth is its size, and its standard error as a share of it."""
    draw, clock = np.random.default_rng(seed), np.linspace(1.0, 0.5, 8)
    keys = [(stage, Kind.FORWARD) for stage in range(len(sizes))]
    errors = {key: np.full(8, share) for key, share in zip(keys, shares, strict=True)}
    noisy = [1.0 + errors[key] * draw.standard_normal(8) for key in keys]
    values = {key: size * own for key, size, own in zip(keys, sizes, noisy, strict=True)}
    curves, _ = fit_curves(dict.fromkeys(keys, clock), values, errors, time_basis, known_errors=True)
    level, variance = (float(one.mean()) for one in (curves[keys[0]].mean, curves[keys[0]].covariance))
    return level, variance**0.5 / level


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1])
def test_others_lend_their_level_as_surely_as_it_is_known_whatever_their_size(seed: int) -> None:
    """A stage known to 20 % beside eight known to 3 %, then with four of these far larger or smaller."""
    shares = [0.2, *[0.03] * 8]
    assert level_of_first([1.0] * 9, shares, seed)[1] <= 0.03
    assert level_of_first([*[1.0] * 5, 100.0, 100.0, 0.01, 0.01], shares, seed)[1] <= 0.033


@pytest.mark.thorough
def test_a_level_lent_by_two_that_are_unsure_is_as_unsure() -> None:
    """Were the others' median taken for the truth, levels would be off by 2.6 times what they state."""
    found = np.array([level_of_first([1.0] * 3, [0.2] * 3, seed) for seed in range(12)])
    assert np.sqrt(np.mean(((found[:, 0] - 1.0) / found[:, 1]) ** 2)) <= 2.0


@pytest.mark.thorough
def test_errors_of_a_curve_go_together() -> None:
    """Its level is off alike at all clocks: twelve points do not make that twelve times as small."""
    found = smooth(measured(true_profile("a40", 12), 1)).errors[0, Kind.FORWARD]
    covariance = found.time @ found.time.T
    assert float(covariance.mean()) > 0.3 * float(np.diag(covariance).mean())
    np.testing.assert_allclose(found.shares()[0], np.sqrt(np.diag(covariance)))


# What curves are explained by: measured points alone, whatever stands at the clocks between them.

PLACE = np.linspace(0.5, 1.0, 13)
MEASURED = [0, 4, 7, 10, 12]
DISCREPANCIES = {(0.0, 0.0): 0.3, (0.003, 0.0): 0.5, (0.01, 0.003): 0.2}


TRUTH = 0.4 + 0.5 * PLACE + np.where(PLACE > 0.7, (PLACE - 0.7) ** 2, 0.0)


def curve(made_up: float, *, share: float = 0.01) -> MeasuredCurve:
    """Power over the clock; what was not measured stands at a number of its own."""
    values, errors = np.full(len(PLACE), made_up), np.full(len(PLACE), UNKNOWN * made_up)
    values[MEASURED], errors[MEASURED] = TRUTH[MEASURED], share * TRUTH[MEASURED]
    return MeasuredCurve(PLACE, values, errors)


def test_a_prediction_comes_from_measured_points_and_is_less_sure_between_them() -> None:
    ways, whole = power_basis(PLACE), curve(0.8)
    known = posterior([(ways, DISCREPANCIES)], whole)
    assert known.mean == pytest.approx(posterior([(ways, DISCREPANCIES)], curve(1.1)).mean, abs=1e-9)
    sure = np.sqrt(np.diag(known.covariance))
    assert np.all(np.abs(known.mean - TRUTH) < 3.0 * sure)
    assert sure[2] > sure[0]
    assert sure.max() < 0.02


def test_predicted_clocks_lie_between_all_measured_ones_up_to_both_ends() -> None:
    """Five of 48 clocks are measured; a curve has 32 points."""
    gpu, true = model_named("a100-sxm4-80gb"), true_profile("a100-sxm4-80gb", 5)
    found = smooth(replace(true, grid_mhz=gpu.clocks_mhz)).of(0, Kind.FORWARD)
    clocks_mhz = [point.clock_mhz for point in found]
    assert len(clocks_mhz) == 32
    assert set(true.clocks_mhz) <= set(clocks_mhz)
    assert clocks_mhz[0] - clocks_mhz[1] == clocks_mhz[-2] - clocks_mhz[-1] == 15


# Durations that never fall with the clock, where errors allow it.

CLOCKS_MHZ = tuple(range(1410, 1110, -15))
SHARE = 0.005


def capped(seed: int, *, top: float = 1.0) -> Profile:
    """Clocks above 1290 MHz are not held and last alike; ``top`` the highest so much longer."""
    draw, points = np.random.default_rng(seed), {}
    for key in [(stage, kind) for stage in range(2) for kind in (Kind.FORWARD, Kind.BACKWARD)]:
        times = np.array([0.1 * 1290 / min(mhz, 1290) for mhz in CLOCKS_MHZ])
        times[0] *= top
        times *= 1.0 + SHARE * draw.standard_normal(len(times))
        points[key] = tuple(
            Point(mhz, float(time_s), 300.0 * float(time_s), SHARE * float(time_s), 2 * SHARE * 30.0)
            for mhz, time_s in zip(CLOCKS_MHZ, times, strict=True)
        )
    return Profile(points, blocking_power_w=80.0)


def test_what_falls_is_pooled_by_its_weights_unless_it_is_surely_slower() -> None:
    values, weights = np.array([1.0, 3.0, 2.0, 2.0, 5.0, 4.0]), np.array([1.0, 1.0, 1.0, 2.0, 1.0, 3.0])
    expected = [1.0, 2.25, 2.25, 2.25, 4.25, 4.25]
    np.testing.assert_allclose(isotonic_fit(values, weights), expected)
    both = isotonic_fit(np.column_stack([values, values[::-1]]), weights)
    np.testing.assert_allclose(both[:, 0], expected)
    assert np.all(np.diff(both, axis=0) >= 0.0)
    times_s, errors_s = np.array([1.02, 1.0, 1.1]), np.full(3, 0.01)
    np.testing.assert_allclose(monotone(times_s, errors_s), [1.01, 1.01, 1.1])
    np.testing.assert_array_equal(monotone(times_s, errors_s / 5.0), times_s)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_no_clock_seems_faster_than_the_highest_above_a_power_cap(seed: int) -> None:
    found = smooth(capped(seed))
    for key in found.points:
        times_s = [point.time_s for point in found.of(*key)]
        assert times_s == sorted(times_s)
        assert times_s[0] == pytest.approx(0.1, rel=2 * SHARE)


def test_a_highest_clock_that_surely_is_slower_stays_so() -> None:
    """Nine standard errors of every point: some GPUs dither under their cap, and lose time by it."""
    slow = smooth(capped(0, top=1.0 + 9.0 * SHARE))
    for key in slow.points:
        first, second = slow.of(*key)[:2]
        assert first.time_s > second.time_s
