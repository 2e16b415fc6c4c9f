"""Durations follow loads: the regression finds what made them, says how sure it is, and adds up."""

import numpy as np
import pytest

from perseus_ds.errors import ConfigError
from perseus_ds.profile import LoadFit, LoadSums, Point, Profile, fit_of
from perseus_ds.profile.loads import normalized_to_load
from perseus_ds.schedule import Kind, Load


def executions(
    count: int, *, seed: int = 0, noise: float = 0.0, terms: tuple[float, float, float] = (0.1, 0.6, 0.3)
) -> tuple[list[Load], np.ndarray]:
    """Packs of four log-normal sequences; seconds by the terms, 0.2 s at the mean load."""
    random = np.random.default_rng(seed)
    lengths = np.round(512.0 * random.lognormal(0.0, 0.8, (count, 4)))
    loads = [Load.of_lengths(one) for one in lengths]
    tokens, squares = lengths.sum(axis=1), (lengths**2).sum(axis=1)
    relative = terms[0] + terms[1] * tokens / tokens.mean() + terms[2] * squares / squares.mean()
    return loads, 0.2 * relative * (1.0 + noise * random.standard_normal(count))


def fitted(count: int, *, seed: int = 0, noise: float = 0.0, **more: tuple[float, float, float]) -> LoadFit:
    loads, seconds = executions(count, seed=seed, noise=noise, **more)
    fit = fit_of(LoadSums.of(loads, seconds))
    assert fit is not None
    return fit


def test_what_made_the_durations_is_found_again_but_more_work_never_takes_less_time() -> None:
    """Durations that fall with the load are not believed: the load explains nothing then."""
    fit = fitted(500)
    assert (fit.base, fit.tokens, fit.squares) == pytest.approx((0.1, 0.6, 0.3), abs=1e-6)
    assert fit.r2 == pytest.approx(1.0)
    assert fit.factor(fit.mean) == pytest.approx(1.0)
    fit = fitted(300, terms=(1.5, -0.5, 0.0))
    assert (fit.tokens, fit.squares) == (0.0, 0.0)
    assert fit.r2 == pytest.approx(0.0, abs=1e-9)


def test_errors_are_as_large_as_the_fits_of_many_jobs_differ() -> None:
    """A hundred jobs: predictions at a long microbatch scatter by their stated standard error."""
    long, off, stated = Load.of_lengths([3000.0] * 4), [], []
    fits = [fitted(200, seed=seed, noise=0.02) for seed in range(100)]
    for fit in fits:
        true = 0.1 + 0.6 * long.tokens / fit.mean.tokens + 0.3 * long.squares / fit.mean.squares
        off.append(fit.factor(long) / true - 1.0)
        stated.append(fit.error(long) / true)
    assert np.std(off) == pytest.approx(np.mean(stated), rel=0.35)
    assert np.mean([fit.scatter for fit in fits]) == pytest.approx(0.02, rel=0.3)


def test_windows_at_several_clocks_add_up_to_one_fit() -> None:
    """A slower clock multiplies all durations; in units of its own mean it tells the same."""
    loads, seconds = executions(400)
    one = LoadSums.of(loads[:200], seconds[:200])
    other = LoadSums.of(loads[200:], 1.4 * seconds[200:])
    joined = fit_of(one.in_units_of(0.2) + other.in_units_of(0.28))
    whole = fit_of(LoadSums.of(loads, seconds))
    assert joined.samples == 400
    assert joined.factor(Load(9e3, 3e7)) == pytest.approx(whole.factor(Load(9e3, 3e7)), rel=1e-6)


def test_a_hiccup_of_the_host_moves_nothing() -> None:
    loads, seconds = executions(300, noise=0.01)
    calm = fit_of(LoadSums.of(loads, seconds))
    seconds[[7, 99, 180]] *= 20.0
    shaken = fit_of(LoadSums.of(loads, seconds))
    assert shaken.factor(Load(9e3, 3e7)) == pytest.approx(calm.factor(Load(9e3, 3e7)), rel=0.02)
    assert shaken.scatter < 0.02


def test_few_executions_or_equal_loads_are_not_fitted() -> None:
    loads, seconds = executions(7)
    assert fit_of(LoadSums.of(loads, seconds)) is None
    assert fit_of(LoadSums.of([Load(100.0, 1e4)] * 50, [0.1] * 50)) is None
    assert fit_of(LoadSums.of([Load(0.0)] * 50, [0.1] * 50)) is None


@pytest.mark.parametrize("tokens", [(50.0, 100.0, 200.0, 125.0), (200.0, 200.0)])
def test_few_or_equal_executions_are_taken_in_proportion_to_their_load(tokens: tuple[float, ...]) -> None:
    loads = [Load(own, own**2) for own in tokens]
    brought = normalized_to_load(0.003 * np.array(tokens), loads, Load(100.0, 10_000.0))
    assert brought.seconds == pytest.approx([0.3] * len(tokens))


def test_a_profile_knows_its_computations_at_a_load() -> None:
    """Also where the first stage counts tokens and the second elements, sixteen to a token."""
    first, second = fitted(300), fitted(300, seed=1)
    mean = Load(16.0 * second.mean.tokens, 256.0 * second.mean.squares)
    elements = LoadFit(mean, 0.1, 0.6, 0.3, 0.02, 0.9, 9)
    key, point = (1, Kind.FORWARD), (Point(1410, 0.1, 9.0),)
    loads = {(0, Kind.FORWARD): first, key: elements}
    profile = Profile(dict.fromkeys(loads, point), loads=loads)
    load = 1.0, 2.0 * first.mean.tokens, 3.0 * first.mean.squares
    fitted_at, never_fitted = profile.load_terms([key, (1, Kind.BACKWARD)], counted_at=0) @ load
    assert fitted_at == pytest.approx(0.1 + 0.6 * 2.0 + 0.3 * 3.0)
    assert never_fitted == 1.0


def test_loads_are_counted_by_lengths_or_shape() -> None:
    assert Load.of_lengths([3, 4]) == Load(7.0, 25.0)
    assert Load.of_lengths([]) == Load(0.0, 0.0)
    assert Load.of_shape((2, 10)) == Load(20.0, 200.0)
    assert Load.of_shape((2, 3, 4, 4)) == Load(96.0, 2.0 * 48.0**2)
    assert Load(1.0, 2.0) + Load(3.0, 4.0).times(2.0) == Load(7.0, 10.0)
    with pytest.raises(ConfigError, match="-1"):
        Load.of_lengths([5, -1])
