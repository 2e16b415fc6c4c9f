"""Where each rank reads paces and what it publishes, over a real gloo group of one rank."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch.distributed as dist
from straggler_cluster import STAGES, index, planned

from perseus_ds.errors import EngineError
from perseus_ds.profile import LoadFit, Profile
from perseus_ds.runtime.comm.control_group import control_group
from perseus_ds.runtime.comm.interfaces import Reach
from perseus_ds.runtime.comm.progress import ProgressExchange, outlook_of
from perseus_ds.runtime.control.iteration_pacer import IterationPacer, looks_at
from perseus_ds.schedule import Load, dag_of, textbook
from perseus_ds.simulation import textbook_profile
from perseus_ds.straggler import Forecast, ProgressMarks, ReplicaPlans

MICROBATCHES = 8
REPLICAS = 2


@pytest.fixture
def group(tmp_path: Path) -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield control_group("progress", Reach(), patience=timedelta(seconds=20))
    dist.destroy_process_group()


def profile() -> Profile:
    """Durations that follow tokens, with 1 % left unexplained."""
    plain = textbook_profile(STAGES, variation=0.3)
    fit = LoadFit(Load(1000.0), base=0.0, tokens=1.0, squares=0.0, scatter=0.01, r2=0.99, samples=100)
    return replace(plain, loads=dict.fromkeys(plain.points, fit))


def forecast() -> Forecast:
    return Forecast(planned(), index().objective, profile())


def equal(tokens: float) -> list[Load]:
    return [Load(tokens)] * MICROBATCHES


def test_marks_lie_about_a_quarter_apart() -> None:
    marks = forecast().marks
    assert marks.share == pytest.approx((0.0, 0.25, 0.5, 0.75), abs=0.12)


def test_a_forecast_of_the_mean_load_is_the_usual() -> None:
    foretold = forecast().of(equal(1000.0))
    assert foretold.left_s == pytest.approx(forecast().usual.left_s)
    assert foretold.left_s[0] == pytest.approx(index().objective_s, rel=1e-6)


def test_a_forecast_follows_the_loads() -> None:
    assert forecast().of(equal(1300.0)).left_s == pytest.approx(1.3 * forecast().usual.left_s)
    long_last = [*equal(1000.0)[1:], Load(3000.0)]
    assert (forecast().of(long_last).left_s > 1.2 * forecast().usual.left_s).all()


def test_its_error_is_that_of_what_loads_leave_open() -> None:
    error = forecast().usual.error
    assert 0.003 < error[0] < 0.01
    assert error[-1] > error[0]


def test_without_a_profile_nothing_is_foretold() -> None:
    bare = Forecast(planned(), index().objective, None)
    assert not bare.tells
    assert bare.usual.left_s[0] == pytest.approx(index().objective_s, rel=1e-6)


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
def test_nobody_looks_for_a_mark_before_its_work_depends_on_it(name: str) -> None:
    """Or two ranks could wait for each other."""
    schedule = textbook(name, stages=3, microbatches=6)
    computed = [[i for i in order if i.kind.is_computation] for order in schedule.orders]
    dag = dag_of(schedule)
    marks = ProgressMarks((-1, 2, 5, 8), (0.0, 0.2, 0.4, 0.7), (0.1, 0.3, 0.5, 0.8))
    for rank in range(3):
        looks = looks_at(schedule, marks, rank)
        assert looks[0] == 0
        for mark, look in list(zip(marks.after, looks, strict=True))[1:]:
            needed = ancestors(dag.nodes.index(computed[0][mark]), dag.edges)
            assert all(dag.nodes.index(one) not in needed for one in computed[rank][look:])


def ancestors(node: int, edges: tuple[tuple[int, int], ...]) -> set[int]:
    """A node and all that runs before it."""
    found = {node}
    while more := {before for before, after in edges if after in found} - found:
        found |= more
    return found


def pacer(group: dist.ProcessGroup, plans: ReplicaPlans, *, marks: ProgressMarks) -> IterationPacer:
    exchange = ProgressExchange(group, marks=len(marks.share), replicas=REPLICAS, replica=0, waits=True)
    return IterationPacer(
        plans,
        exchange,
        forecast(),
        looks=looks_at(planned().schedule, marks, 0),
        speaks=True,
        usual_s=np.full(REPLICAS, index().objective_s),
    )


def test_an_iteration_s_marks_are_told_and_taken_once_each(group: dist.ProcessGroup) -> None:
    marks = forecast().marks
    plans = ReplicaPlans([index()] * REPLICAS, marks=marks)
    one = pacer(group, plans, marks=marks)
    for n in range(3):
        plans.will_run(n)
        one.foretell(equal(900.0))
        assert one.knows_loads
        one.begins(n, 10.0)
        for position in range(2 * MICROBATCHES):
            one.before(position)
            one.after(position, 10.0 + position)
        one.ends()
        assert plans.plans == [index().objective] * REPLICAS, "the other replica tells nothing"


@pytest.mark.parametrize("loads", [None, [], equal(1.0)[:-1]])
def test_loads_of_another_number_are_none(group: dist.ProcessGroup, loads: list[Load] | None) -> None:
    marks = forecast().marks
    one = pacer(group, ReplicaPlans([index()] * REPLICAS, marks=marks), marks=marks)
    one.foretell(loads)
    assert not one.knows_loads


class Gone:
    """A group whose other ranks cannot be reached."""

    def allreduce(self, *_: object) -> dist.Work:
        raise RuntimeError("Connection closed by peer")


def test_ranks_that_are_lost_within_an_iteration_are_reported_at_its_end() -> None:
    marks = forecast().marks
    plans = ReplicaPlans([index()] * REPLICAS, marks=marks)
    one = pacer(cast("dist.ProcessGroup", Gone()), plans, marks=marks)
    plans.will_run(0)
    one.begins(0, 10.0)
    for position in range(2 * MICROBATCHES):
        one.before(position)
        one.after(position, 10.0 + position)
    with pytest.raises(EngineError, match="a rank fell silent"):
        one.ends()


def test_what_is_not_told_is_the_usual() -> None:
    numbers = np.array([[0.5, -math.inf], [2.0, -math.inf], [0.01, -math.inf]])
    outlook = outlook_of(numbers, np.array([3.0, 3.0]), 0.1)
    assert outlook.by_load.tolist() == [True, False]
    assert outlook.left_s.tolist() == [2.0, 3.0]
    assert outlook.known.tolist() == [True, False], "how far it is was not told either"
