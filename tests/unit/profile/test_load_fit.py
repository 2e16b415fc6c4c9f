"""Durations follow loads: the regression finds what made them, says how sure it is, and adds up; ranks."""

from itertools import pairwise

import numpy as np
import pytest

from perseus_ds.errors import ConfigError
from perseus_ds.profile import Point, Profile
from perseus_ds.profile.iterations import IterationModel
from perseus_ds.profile.loads import LoadFit, LoadSums, fit_of, normalized_to_load
from perseus_ds.schedule import Kind, Load, Schedule, dag_of, textbook


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
        terms = np.array([1.0, long.tokens / fit.mean.tokens, long.squares / fit.mean.squares])
        factors = np.outer(terms, terms) * [[1.0, 2.0, 2.0], [0.0, 1.0, 2.0], [0.0, 0.0, 1.0]]
        stated.append(np.sqrt(factors[np.triu_indices(3)] @ fit.covariance) / true)
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
    assert Load(1.0, 2.0) + Load(6.0, 8.0) == Load(7.0, 10.0)
    with pytest.raises(ConfigError, match="-1"):
        Load.of_lengths([5, -1])


# Times of ranks from the lengths of whole iterations, against iterations whose durations are known.

SLOWER = 1.8
KINDS = {Kind.FORWARD: 1.0, Kind.BACKWARD: 2.0, Kind.FORWARD_BACKWARD: 3.0}
UNEVEN = [1.0, 0.9, 0.8, 1.1]


def iteration_s(schedule: Schedule, rank_s: list[float], backward: float = 2.0) -> float:
    """Play the schedule; a rank's forward lasts as stated, a backward ``backward`` times as long."""
    dag, ranks = dag_of(schedule), len(schedule.orders)
    rank_of = {one: rank for rank, order in enumerate(schedule.orders) for one in order}
    kinds = KINDS | {Kind.BACKWARD: backward}
    lasts = [rank_s[rank_of[node] % ranks] * kinds.get(node.kind, 0.0) for node in dag.nodes]
    return max(start + own for start, own in zip(dag.earliest_starts(lasts), lasts, strict=True))


def model_of(schedule: Schedule, rank_s: list[float], backward: float = 2.0) -> tuple[IterationModel, float]:
    model = IterationModel(schedule, {})
    slower = 1.0 + (SLOWER - 1.0) * np.eye(len(rank_s))
    slowed_s = [iteration_s(schedule, (own * rank_s).tolist(), backward) for own in slower]
    return model, model.fit(iteration_s(schedule, rank_s, backward), slowed_s, SLOWER)


@pytest.mark.parametrize("microbatches", [4, 8, 32])
@pytest.mark.parametrize("rank_s", [[1.0] * 4, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize(("name", "chunks"), [("1f1b", 1), ("interleaved", 2), ("interleaved-fb", 2)])
def test_times_of_ranks_are_found(name: str, chunks: int, rank_s: list[float], microbatches: int) -> None:
    schedule = textbook(name, stages=4 * chunks, microbatches=microbatches, chunks=chunks)
    model, misfit = model_of(schedule, rank_s)
    assert model.rank_s / model.rank_s[0] == pytest.approx(np.array(rank_s) / rank_s[0], rel=1e-3)
    assert misfit < 1e-3


@pytest.mark.parametrize("backward", [1.6, 2.4])
def test_the_share_of_a_forward_hardly_matters(backward: float) -> None:
    model, misfit = model_of(textbook("1f1b", stages=4, microbatches=32), UNEVEN, backward)
    assert model.rank_s / model.rank_s[3] == pytest.approx(np.array(UNEVEN) / UNEVEN[3], rel=0.01)
    assert misfit < 0.005


def test_iterations_that_no_schedule_explains_are_told() -> None:
    model = IterationModel(textbook("1f1b", stages=4, microbatches=8), {})
    assert model.fit(1.0, [0.5, 3.0, 1.0, 1.2], SLOWER) > 0.02


def test_intervals_fill_the_iteration_that_was_seen() -> None:
    schedule = textbook("1f1b", stages=4, microbatches=8)
    model, _ = model_of(schedule, UNEVEN)
    seen = [model.intervals(rank, 100.0, 10.0) for rank in range(4)]
    assert max(one.end_s for own in seen for one in own) == pytest.approx(110.0)
    assert seen[0][0].start_s == pytest.approx(100.0)
    for rank, own in enumerate(seen):
        assert [one.instruction for one in own] == list(schedule.orders[rank])
        assert all(one.end_s <= other.start_s + 1e-9 for one, other in pairwise(own))
    busy = [sum(one.duration_s for one in own) / 10.0 for own in seen]
    assert busy == pytest.approx(model.busy())
