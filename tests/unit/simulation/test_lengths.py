"""Loads of an emulated job: against figures that stand on paper."""

from pathlib import Path

import numpy as np
import pytest

from perseus_ds.errors import PerseusError
from perseus_ds.plan import PlanSet, build
from perseus_ds.profile import Point, Profile
from perseus_ds.profile.loads import LoadFit
from perseus_ds.schedule import Kind, Load, textbook
from perseus_ds.simulation.emulator import DEFAULT_CLOCKS, ClusterShape, Conditions, Emulator
from perseus_ds.simulation.scenario import EmulatedLoads, LoadSource


def profile_of(*forward_s: float) -> Profile:
    """Backwards as long as forwards; one clock."""
    own = {stage: (Point(1000, own_s, 100.0 * own_s),) for stage, own_s in enumerate(forward_s)}
    points = {(stage, kind): own[stage] for stage in own for kind in (Kind.FORWARD, Kind.BACKWARD)}
    return Profile(points, blocking_power_w=10.0)


def planned(profile: Profile, microbatches: int) -> PlanSet:
    schedule = textbook("1f1b", stages=profile.stages, microbatches=microbatches)
    return build(profile, schedule, blocking_power_w=10.0)


def file(folder: Path, text: str) -> Path:
    path = folder / "loads.csv"
    path.write_text(text)
    return path


def test_lengths_are_taken_in_turn(tmp_path: Path) -> None:
    loads = EmulatedLoads.read(file(tmp_path, "length\n1\n2\n3\n"))
    assert loads.mean == Load(2.0, 14.0 / 3.0)
    rounds = [loads.of(number, pipelines=2, microbatches=2) for number in (0, 1)]
    tokens = [[[one.tokens for one in row] for row in rows] for rows in rounds]
    assert tokens == [[[1, 2], [3, 1]], [[2, 3], [1, 2]]]


@pytest.mark.parametrize(
    ("loads", "deviation"),
    [
        (LoadSource(lognormal=0.5).read(Path(), 4), np.sqrt(np.expm1(0.25))),
        (LoadSource(lengths={1.0: 3.0, 5.0: 1.0}).read(Path(), 4), np.sqrt(3.0) / 2.0),
    ],
)
def test_distributions_have_their_mean_and_width(loads: EmulatedLoads, deviation: float) -> None:
    drawn = np.array([one.tokens for row in loads.of(7, pipelines=40, microbatches=50) for one in row])
    assert drawn.std() / drawn.mean() == pytest.approx(deviation, rel=0.1)
    assert drawn.mean() == pytest.approx(loads.mean.tokens, rel=0.1)
    assert loads.of(7, pipelines=2, microbatches=3) == loads.of(7, pipelines=2, microbatches=3)


ROWS = {
    "": "empty",
    "length\n": "no length above 0",
    "size\n4\n": "length",
    "length\n4\n-4\n": "row 3: length is '-4'",
    "length\nmany\n": "row 2: length is 'many'",
    "length\n4\n4,5\n": "row 3",
    "length\n0\n0\n": "no length above 0",
    "length\n" + "5" * 200_000: "field larger than field limit",
}


@pytest.mark.parametrize("text", ROWS)
def test_rows_that_mean_nothing_are_refused(tmp_path: Path, text: str) -> None:
    path = file(tmp_path, text)
    with pytest.raises(PerseusError) as caught:
        EmulatedLoads.read(path)
    assert str(caught.value).startswith(str(path))
    assert ROWS[text] in str(caught.value)


def test_a_job_lasts_as_its_loads_do(tmp_path: Path) -> None:
    """One stage, two microbatches of forwards and backwards of 1 s; the longer replica is waited for."""
    profile = profile_of(1.0)
    loads = EmulatedLoads.read(file(tmp_path, "length\n1\n1\n1\n5\n"))
    conditions = Conditions(loads=loads)
    job = Emulator(planned(profile, 2), profile, ClusterShape(pipelines=2), conditions=conditions)
    found = job.play(2, always=DEFAULT_CLOCKS)
    np.testing.assert_allclose(found.own_s, [[2.0, 6.0]] * 2)  # a mean of 2 tokens takes 1 s
    np.testing.assert_allclose(found.job_s, 6.0)


def test_what_the_profile_fitted_is_what_a_load_costs(tmp_path: Path) -> None:
    """Half of the time is fixed: lengths of 1 and 3 take 0.75 and 1.25 s."""
    fit = LoadFit(Load(77.0, 1.0), 0.5, 0.5, 0.0, 0.0, 1.0, 100)
    plain = profile_of(1.0)
    profile = Profile(plain.points, 10.0, loads=dict.fromkeys(plain.points, fit))
    conditions = Conditions(loads=EmulatedLoads.read(file(tmp_path, "length\n1\n3\n")))
    job = Emulator(planned(profile, 2), profile, ClusterShape(), conditions=conditions)
    np.testing.assert_allclose(job.play(1, always=DEFAULT_CLOCKS).job_s, 4.0)
