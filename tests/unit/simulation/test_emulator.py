"""The emulator against plans on paper, jobs whose seconds and joules are counted by hand, and its own books.

By hand: a forward takes 1 s at 1000 MHz (100 W) and 2 s at 500 (75 W), a backward 2 s (100 W) and 4 s (40 W).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from schedules import clocks_of_stage
from textbook_gpu import textbook_profile

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import ConfigError, PlanError
from perseus_ds.plan import PlanSet, build
from perseus_ds.plan.problem import Switching
from perseus_ds.plan.record import Splits
from perseus_ds.profile import Point, Profile
from perseus_ds.profile.records import Computation
from perseus_ds.schedule import Instruction, Kind, Schedule, textbook
from perseus_ds.simulation import emulator as emulation
from perseus_ds.simulation.cluster import tables_of
from perseus_ds.simulation.emulator import DEFAULT_CLOCKS, ClusterShape, Conditions, Emulator
from perseus_ds.simulation.scenario import Straggler, parse_straggler, read_scenario

pytestmark = pytest.mark.thorough

BLOCKING_W, WAITING_W = 70.0, 10.0
WEIGHTS = (1.0, 1.15, 0.9, 1.3)
PROFILE = textbook_profile(WEIGHTS)
FORWARD = (Point(1000, 1.0, 100.0), Point(500, 2.0, 150.0))
BACKWARD = (Point(1000, 2.0, 200.0), Point(500, 4.0, 160.0))
WORKING, _, BARRIER, PEERS = emulation.CAUSES


def planned(microbatches: int = 6, profile: Profile = PROFILE, name: str = "1f1b") -> PlanSet:
    schedule = textbook(name, stages=profile.stages, microbatches=microbatches)
    return build(profile, schedule, blocking_power_w=profile.blocking_power_w or BLOCKING_W)


@pytest.fixture(scope="module")
def plans() -> PlanSet:
    return planned()


def played(
    plans: PlanSet, cluster: ClusterShape, iterations: int, *stragglers: str, **conditions: float
) -> emulation.Emulated:
    job = Emulator(plans, PROFILE, cluster, conditions=Conditions(**conditions))
    return job.play(iterations, map(parse_straggler, stragglers))


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1", "interleaved", "zbv"])
@pytest.mark.parametrize("transfers", [False, True])
def test_free_changes_play_every_schedule_as_planned_on_paper(name: str, *, transfers: bool) -> None:
    points, fixed_s = dict(PROFILE.points), {}
    for stage in range(4):
        whole = points[stage, Kind.BACKWARD]
        half = tuple(Point(p.clock_mhz, p.time_s / 2, p.energy_j / 2) for p in whole)
        points[stage, Kind.BACKWARD_INPUT] = points[stage, Kind.BACKWARD_WEIGHT] = half
        fixed_s |= {(stage, Kind.REDUCE_GRADS): 0.05}
        fixed_s |= {(stage, kind): 0.004 for kind in (Kind.SEND_ACTIVATION, Kind.SEND_GRAD)}
    profile = Profile(points, blocking_power_w=BLOCKING_W)
    known = Profile(points, blocking_power_w=BLOCKING_W, fixed_s=fixed_s) if transfers else profile
    plans = planned(4, known, name)
    emulated = Emulator(plans, profile, ClusterShape())
    found = emulated.play(3)
    index = emulated.frontier_index.objective
    np.testing.assert_allclose(found.job_s, plans.iteration_time_s[index], rtol=1e-9)
    np.testing.assert_allclose(found.energy_j.sum(axis=1), plans.energy_j[index], rtol=1e-9)
    default = emulated.play(2, always=DEFAULT_CLOCKS)
    np.testing.assert_allclose(default.energy_j.sum(axis=1), plans.baseline.energy_j, rtol=1e-9)


def by_hand(stages: int, fixed_s: Mapping[Computation, float] | None = None) -> Profile:
    both = {Kind.FORWARD: FORWARD, Kind.BACKWARD: BACKWARD}
    points = {(stage, kind): own for stage in range(stages) for kind, own in both.items()}
    return Profile(points, blocking_power_w=WAITING_W, fixed_s=fixed_s or {})


class Case(NamedTuple):
    """Run a microbatch through the stages: durations of iterations, and joules by cause (all: "").

    ``slow``: the plan with a forward at 1000 MHz and a backward at 500, else default clocks.
    """

    job_s: Sequence[float]
    cluster: ClusterShape
    stragglers: Sequence[str] = ()
    stages: int = 1
    slow: bool = False
    spent_j: Mapping[str, float] = {}
    changes: int | None = None


PROMPT = ClockChange(call_s=0.1, settle_down_s=0.4, settle_up_s=0.4)
UNKNOWN = ClusterShape(change=ClockChange(call_s=0.1, settle_down_s=0.4), reckoned=ClockChange())
BY_CLOCK = ClusterShape(pipelines=2, waiting_w={1000: 10.0, 500: 4.0})
CASES = {
    # the backward at 500 MHz is 0.02 s late: a hundredth of it is done by then
    "a lower clock is asked for when it may be there": Case(
        [1.0 + 0.02 + 0.99 * 4.0],
        ClusterShape(change=PROMPT),
        slow=True,
        spent_j={"": 100.0 + 0.01 * 200.0 + 0.99 * 160.0},
        changes=2,  # down for the backward, up asked for 0.5 s before it should end
    ),
    # the backward begins 0.25 s late; the change for the next iteration comes when it is over
    "while a change stalls the GPU it waits": Case(
        [1.0 + 0.25 + 4.0],
        ClusterShape(change=ClockChange(stall_s=0.25)),
        slow=True,
        spent_j={PEERS: 0.25 * WAITING_W},
    ),
    "tensor peers wait for the slowest of them": Case(
        [6.0],
        ClusterShape(tensor=2),
        ["slow:pipeline=0,gpu=1,factor=2"],
        spent_j={PEERS: 3.0 * WAITING_W, WORKING: 300.0 + 600.0},
    ),
    # down at 1.02 s, in the forward of the slow GPU: 1.02 of its 2 s are done, the rest takes 1.96 s; up is
    # asked for 3.5 s after its backward began and there at 4 s, halfway: 2 s more at the high clock
    "a rank goes on when its last GPU is done though a clock fell meanwhile": Case(
        [1.02 + 1.96 + 4.0 + 2.0],
        ClusterShape(tensor=2, change=PROMPT),
        ["slow:pipeline=0,gpu=1,factor=2"],
        slow=True,
    ),
    "a bad link delays what is sent once down and once up": Case(
        [6.0 + 2 * 0.25], ClusterShape(), ["link:pipeline=0,seconds=0.25"], stages=2
    ),
    "a bad link of one rank delays what it sends": Case(
        [6.0 + 0.25], ClusterShape(), ["link:pipeline=0,rank=0,seconds=0.25"], stages=2
    ),
    # up takes 0.5 s, believed to be free: a quarter of the next forward is done by then, the rest in 0.75 s
    "each direction settles in its own time": Case(
        [5.0, 5.25, 5.25],
        ClusterShape(change=ClockChange(settle_up_s=0.5), reckoned=ClockChange()),
        slow=True,
    ),
    # half a second that nobody reckoned with: a quarter of the backward is done at the high clock
    "a job asks ahead by what it believes and not by the truth": Case(
        [1.0 + 0.5 + 0.75 * 4.0], UNKNOWN, slow=True, spent_j={"": 100.0 + 0.5 * 100.0 + 3.0 * 40.0}
    ),
    "waiting for other pipelines takes what the clock in force takes": Case(
        [6.0], BY_CLOCK, ["slow:pipeline=1,factor=2"], spent_j={BARRIER: 3.0 * 10.0}
    ),
    "waiting at a clock that is capped takes less": Case(
        [9.0], BY_CLOCK, ["slow:pipeline=1,factor=3", "cap:pipeline=0,mhz=500"], spent_j={BARRIER: 3.0 * 4.0}
    ),
    **{
        f"a cap of {mhz} MHz leaves the next clock of the grid, or its lowest": Case(
            [iteration_s], ClusterShape(), [f"cap:pipeline=0,mhz={mhz}"]
        )
        for mhz, iteration_s in ((1000, 3.0), (999, 6.0), (400, 6.0))
    },
    "a GPU without a rank is one of the first rank": Case(
        [2 * 3.0 + 3.0], ClusterShape(tensor=2), ["slow:pipeline=0,gpu=1,factor=2"], stages=2
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_seconds_and_joules_are_those_counted_by_hand(name: str) -> None:
    case, profile = CASES[name], by_hand(CASES[name].stages)
    plans = planned(1, profile)
    slow = [i for i in range(len(plans)) if clocks_of_stage(plans.plan(i), 0) == [1000, 500]]
    always = slow[0] if case.slow else DEFAULT_CLOCKS
    job = Emulator(plans, profile, case.cluster)
    found = job.play(len(case.job_s), map(parse_straggler, case.stragglers), always=always)
    assert found.job_s.tolist() == pytest.approx(case.job_s)
    spent_j = {"": found.energy_j[0].sum(), **found.by_cause_j}
    assert {cause: spent_j[cause] for cause in case.spent_j} == pytest.approx(dict(case.spent_j))
    assert case.changes in {None, found.changes[0]}


def test_ranks_meet_for_the_norm_after_all_reductions_and_step_after_it() -> None:
    """Rank 0 is done at 6 s and reduces in 0.1 s, rank 1 at 4 s and in 3 s: all step from 7 s on."""
    kinds = (Kind.FORWARD, Kind.BACKWARD, Kind.REDUCE_GRADS, Kind.STEP)
    fixed_s = {(0, kinds[2]): 0.1, (1, kinds[2]): 3.0, (0, Kind.STEP): 0.5, (1, Kind.STEP): 0.2}
    orders = tuple(tuple(Instruction(rank, kind, 0) for kind in kinds) for rank in range(2))
    profile = by_hand(2, fixed_s)
    plans = build(profile, Schedule("by hand", 1, orders), blocking_power_w=WAITING_W)
    emulator = Emulator(plans, profile, ClusterShape())
    assert emulator.play(1, always=DEFAULT_CLOCKS).job_s[0] == pytest.approx(7.0 + 0.5)


def test_below_the_lowest_measured_clock_work_follows_the_clock() -> None:
    """Half the clock: twice the time at half the power; between two clocks on the line."""
    waiting_w = {500: 4.0, 1000: 10.0}
    tables = tables_of(by_hand(1), [(0, Kind.BACKWARD)], waiting_w=waiting_w, clocks_mhz=[250, 750])
    assert tables.clock_mhz.tolist() == [250, 500, 750, 1000]
    assert tables.time_s[0].tolist() == pytest.approx([8.0, 4.0, 3.0, 2.0])
    assert tables.power_w[0].tolist() == pytest.approx([20.0, 40.0, 70.0, 100.0])
    assert tables.waiting_w.tolist() == pytest.approx([4.0, 4.0, 7.0, 10.0])


def test_waits_at_low_clocks_take_what_the_plan_says_where_changes_are_free() -> None:
    measured = Profile(by_hand(4).points, blocking_power_w=WAITING_W, blocking_w={1000: WAITING_W, 500: 4.0})
    schedule = textbook("1f1b", stages=4, microbatches=4)
    plans = build(measured, schedule, blocking_power_w=WAITING_W, switching=Switching(waits="automatic"))
    assert plans.wait_clock is not None
    emulator = Emulator(plans, measured, ClusterShape())
    for index in (0, len(plans) // 2):
        time_s, energy_j = emulation.means(emulator.play(3, always=index))
        assert time_s == pytest.approx(plans.iteration_time_s[index], rel=1e-6)
        assert energy_j == pytest.approx(plans.energy_j[index], rel=1e-3)


@pytest.mark.parametrize(("work", "job_s"), [(1.0, 0.5 + 1.0 + 2.0), (0.25, 0.25 + 0.5)])
def test_a_clock_for_the_rest_is_not_asked_for_once_that_is_over(work: float, job_s: float) -> None:
    """Half a forward is planned at the low clock. A quarter of the work is done before: all runs high."""
    profile = by_hand(1)
    plans = planned(1, profile)
    splits = Splits(np.zeros(1, np.int32), np.zeros(1, np.int32), np.ones(1, np.uint16), np.array([0.5]))
    choice, times_s = np.zeros_like(plans.choice), np.full(len(plans), 3.5)
    plans = replace(plans, choice=choice, splits=splits, iteration_time_s=times_s)
    job = Emulator(plans, profile, ClusterShape(), conditions=Conditions(work=[work]))
    assert job.play(1, always=0).job_s[0] == pytest.approx(job_s)


def test_tensor_parallel_peers_do_the_same_as_one_and_books_balance(plans: PlanSet) -> None:
    change = ClockChange(call_s=0.004, settle_up_s=0.01, settle_down_s=0.02)
    one, eight = (played(plans, ClusterShape(tensor=tensor, change=change), 4) for tensor in (1, 8))
    np.testing.assert_allclose(eight.job_s, one.job_s)
    np.testing.assert_allclose(eight.energy_j, 8 * one.energy_j, rtol=1e-9)
    change = ClockChange(call_s=0.005, settle_up_s=0.02, settle_down_s=0.01, queue_s=0.002)
    cluster = ClusterShape(pipelines=3, tensor=2, change=change, waiting_w={300: 40.0, 1410: 90.0})
    found = played(plans, cluster, 5, noise=0.02, trace_bin_s=0.01)
    assert found.trace.energy_j.sum() == pytest.approx(found.energy_j.sum(), rel=1e-9)
    assert found.energy_j.sum() > 24 * 40.0 * found.job_s.sum()
    assert found.power_w.mean() == pytest.approx(found.energy_j.sum() / found.job_s.sum(), rel=0.05)


def test_all_pipelines_wait_for_the_slow_one_and_waiting_is_what_it_costs(plans: PlanSet) -> None:
    emulator = Emulator(plans, PROFILE, ClusterShape(pipelines=3))
    slow = Straggler(kind="slow", pipeline=1, factor=1.2, first=1)
    plain = emulator.play(2, always=DEFAULT_CLOCKS)
    beset = emulator.play(2, [slow], always=DEFAULT_CLOCKS)
    t_s = plain.job_s[0]
    assert beset.job_s.tolist() == pytest.approx([t_s, 1.2 * t_s])
    more_j = (beset.energy_j[1] - plain.energy_j[1]).sum()
    working_j = 0.2 * plain.energy_j[1, 0] / 3  # the slow one draws its power for longer
    waiting_s = 2 * 4 * 0.2 * t_s + 0.2 * (4 * t_s - 6 * 0.15 * sum(WEIGHTS))
    assert more_j == pytest.approx(working_j + BLOCKING_W * waiting_s, rel=1e-9)


@pytest.mark.parametrize(
    "text",
    [
        *(f"slow:pipeline=1,factor=1.3,rank=2{more}" for more in ("", ",gpu=1")),
        *("cap:pipeline=1,mhz=1000", "link:pipeline=1,seconds=0.02", "input:pipeline=1,seconds=0.3"),
        *("lost:pipeline=1", "announced:pipeline=1,factor=1.3"),
    ],
)
def test_every_straggler_holds_back_its_own_pipeline_alone(plans: PlanSet, text: str) -> None:
    cluster, slower = ClusterShape(pipelines=3, tensor=2), not text.startswith(("lost", "announced"))
    plain, found = played(plans, cluster, 2), played(plans, cluster, 2, text)
    assert found.own_s[0, [0, 2]].tolist() == pytest.approx(plain.own_s[0, [0, 2]].tolist())
    assert not slower or found.own_s[0, 1] > 1.01 * plain.own_s[0, 1]
    assert found.job_s[0] == pytest.approx(found.own_s[0, 1] if slower else plain.job_s[0])


def test_a_lost_pipeline_uses_nothing_and_comes_back(plans: PlanSet) -> None:
    found = played(plans, ClusterShape(pipelines=2), 6, "lost:pipeline=1,from=2,to=4")
    assert np.isnan(found.own_s[2:4, 1]).all()
    assert not np.isnan(found.own_s[4:]).any()
    whole, half = found.energy_j[1].sum(), found.energy_j[3].sum()
    assert half == pytest.approx(whole / 2, rel=1e-6)
    with pytest.raises(ConfigError, match="all pipelines"):
        played(plans, ClusterShape(pipelines=2), 2, "lost:pipeline=1", "lost:pipeline=0")


NO_STRAGGLERS = {
    "sleepy:pipeline=1": "kind",
    "slow:pipeline=1": "factor",
    "slow:factor=2": "pipeline",
    "slow:pipeline=1,factor=2,mhz=1000": "factor",
    "lost:pipeline=1,seconds=2": "no amount",
    "slow:pipeline=1,factor=0.5": "factor",
    "slow:pipeline=-1,factor=2": "pipeline",
    "slow:pipeline=1,factor=2,where=3": "where",
    "link:pipeline=1,seconds=nan": "seconds",
}


@pytest.mark.parametrize("text", NO_STRAGGLERS)
def test_what_makes_no_sense_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=NO_STRAGGLERS[text]):
        parse_straggler(text)


def test_what_does_not_exist_in_the_job_is_refused(plans: PlanSet) -> None:
    emulator = Emulator(plans, PROFILE, ClusterShape(pipelines=2))
    for text, message, there in (
        ("slow:pipeline=2,factor=1.2", "pipeline 2 does not exist", "0 to 1"),
        ("slow:pipeline=0,rank=4,factor=1.2", "rank 4 does not exist", "0 to 3"),
        ("slow:pipeline=0,rank=0,gpu=1,factor=1.2", "gpu 1 does not exist", "0 to 0"),
    ):
        with pytest.raises(ConfigError, match=message) as refused:
            emulator.play(1, [parse_straggler(text)])
        assert there in refused.value.hint
    with pytest.raises(ConfigError, match="0 iterations"):
        emulator.play(0)
    with pytest.raises(PlanError, match="profile"):
        Emulator(plans, textbook_profile((1.0, 1.0, 1.0)), ClusterShape())
    for name in ("pipelines", "tensor"):
        with pytest.raises(ConfigError, match=name):
            ClusterShape(**{name: 0})


def test_a_scenario_is_read_and_what_is_typed_counts_more(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "pipelines: 4\ntensor: 2\nstragglers: [{kind: slow, pipeline: 1, factor: 1.2, from: 3, to: 5}]\n"
        "loads: {lengths: {512: 3, 2048: 1}}\nnoise_pct: 2\ngpu: a100-sxm4-80gb\nstall_ms: 3\n"
    )
    found = read_scenario(file, {"pipelines": 8})
    assert found.stragglers == (Straggler(kind="slow", pipeline=1, factor=1.2, first=3, last=5),)
    cluster, conditions = found.cluster(PROFILE), found.conditions()
    assert (cluster.pipelines, cluster.tensor, cluster.change.stall_s) == (8, 2, 0.003)
    assert cluster.change.call_s > 0.0
    assert conditions.noise == 0.02
    assert {one.tokens for one in conditions.loads.of(0, pipelines=5, microbatches=9)[0]} <= {512, 2048}
    assert read_scenario(None, {}).cluster(PROFILE) == ClusterShape()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("pipelines: 0", "pipelines"),
        ("iterations: many", "iterations"),
        ("replicas: 2", "replicas"),
        ("stragglers: [{kind: slow, pipeline: 1}]", "stragglers.0"),
        ("loads: {lognormal: -1}", "lognormal"),
        ("work: []", "work"),
        ("[1, 2", "not YAML"),
        ("[pipelines]", "not a scenario"),
        ("{1: 2}", "not a scenario"),
    ],
)
def test_a_senseless_scenario_is_refused_by_file_and_key(tmp_path: Path, text: str, key: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=key) as caught:
        read_scenario(file, {})
    assert str(file) in str(caught.value)
    with pytest.raises(ConfigError, match="missing"):
        read_scenario(tmp_path / "missing.yaml", {})
