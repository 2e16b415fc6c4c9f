"""The emulator against plans on paper, against changes counted by hand, and its books against themselves."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import ConfigError, PlanError
from perseus_ds.plan import PlanSet, build
from perseus_ds.profile import Point, Profile
from perseus_ds.schedule import Kind, textbook
from perseus_ds.simulation import textbook_profile
from perseus_ds.simulation.emulator import (
    CAUSES,
    DEFAULT_CLOCKS,
    ClusterShape,
    Conditions,
    Emulator,
    Straggler,
    means,
    parse_straggler,
    read_scenario,
)
from perseus_ds.straggler.controller import Cause

pytestmark = pytest.mark.thorough

BLOCKING_W = 70.0
WEIGHTS = (1.0, 1.15, 0.9, 1.3)
PROFILE = textbook_profile(WEIGHTS)


def planned(microbatches: int = 6, profile: Profile = PROFILE, name: str = "1f1b") -> PlanSet:
    schedule = textbook(name, stages=profile.stages, microbatches=microbatches)
    return build(profile, schedule, blocking_power_w=BLOCKING_W)


@pytest.fixture(scope="module")
def plans() -> PlanSet:
    return planned()


def with_fixed(profile: Profile) -> Profile:
    fixed = {(s, Kind.REDUCE_GRADS): 0.05 for s in range(profile.stages)}
    fixed |= {
        (s, kind): 0.004 for s in range(profile.stages) for kind in (Kind.SEND_ACTIVATION, Kind.SEND_GRAD)
    }
    return Profile(profile.points, blocking_power_w=BLOCKING_W, fixed_s=fixed)


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1", "interleaved", "zbv"])
@pytest.mark.parametrize("transfers", [False, True])
def test_free_changes_play_every_schedule_as_planned_on_paper(name: str, *, transfers: bool) -> None:
    points = dict(PROFILE.points)
    for stage in range(4):
        whole = points[stage, Kind.BACKWARD]
        half = tuple(Point(p.clock_mhz, p.time_s / 2, p.energy_j / 2) for p in whole)
        points[stage, Kind.BACKWARD_INPUT] = points[stage, Kind.BACKWARD_WEIGHT] = half
    profile = Profile(points, blocking_power_w=BLOCKING_W)
    plans = planned(4, with_fixed(profile) if transfers else profile, name)
    emulated = Emulator(plans, profile, ClusterShape())
    found = emulated.play(3)
    index = emulated.frontier_index.objective
    np.testing.assert_allclose(found.job_s, plans.iteration_time_s[index], rtol=1e-9)
    np.testing.assert_allclose(found.energy_j.sum(axis=1), plans.energy_j[index], rtol=1e-9)
    default = emulated.play(2, always=DEFAULT_CLOCKS)
    np.testing.assert_allclose(default.energy_j.sum(axis=1), plans.baseline.energy_j, rtol=1e-9)


def by_hand(change: ClockChange, waiting_w: float = 10.0) -> tuple[PlanSet, Emulator]:
    """One stage, one microbatch: a forward of 1 s at 1000 MHz, a backward that a plan would slow down."""
    points = {
        (0, Kind.FORWARD): (Point(1000, 1.0, 100.0), Point(500, 2.0, 150.0)),
        (0, Kind.BACKWARD): (Point(1000, 2.0, 200.0), Point(500, 4.0, 160.0)),
    }
    profile = Profile(points, blocking_power_w=waiting_w)
    plans = build(profile, textbook("1f1b", stages=1, microbatches=1), blocking_power_w=waiting_w)
    return plans, Emulator(plans, profile, ClusterShape(change=change))


def test_a_lower_clock_is_asked_for_when_it_may_be_there() -> None:
    """The forward at 1000 MHz; the backward at 500, 0.02 s late: a hundredth of it is done by then."""
    plans, emulator = by_hand(ClockChange(call_s=0.1, settle_down_s=0.4, settle_up_s=0.4))
    slow = next(i for i in range(len(plans)) if plans.plan(i).clocks_of_stage(0) == [1000, 500])
    found = emulator.play(1, always=slow)
    assert found.job_s[0] == pytest.approx(1.0 + 0.02 + 0.99 * 4.0)
    assert found.energy_j[0].sum() == pytest.approx(100.0 + 0.01 * 200.0 + 0.99 * 160.0)
    assert found.changes[0] == 2  # down for the backward; up is asked for 0.5 s before it should end


def test_while_a_change_stalls_the_gpu_it_waits() -> None:
    """The backward begins 0.25 s late; the change for the next iteration comes when it is over."""
    plans, emulator = by_hand(ClockChange(stall_s=0.25))
    slow = next(i for i in range(len(plans)) if plans.plan(i).clocks_of_stage(0) == [1000, 500])
    found = emulator.play(1, always=slow)
    assert found.job_s[0] == pytest.approx(1.0 + 0.25 + 4.0)
    assert found.by_cause_j[CAUSES[3]] == pytest.approx(0.25 * 10.0)


def test_tensor_parallel_peers_do_the_same_as_one(plans: PlanSet) -> None:
    change = ClockChange(call_s=0.004, settle_up_s=0.01, settle_down_s=0.02)
    one = Emulator(plans, PROFILE, ClusterShape(change=change)).play(4)
    eight = Emulator(plans, PROFILE, ClusterShape(tensor=8, change=change)).play(4)
    np.testing.assert_allclose(eight.job_s, one.job_s)
    np.testing.assert_allclose(eight.energy_j, 8 * one.energy_j, rtol=1e-9)


def test_calls_that_queue_in_a_node_come_late(plans: PlanSet) -> None:
    def played(queue_s: float) -> tuple[float, float]:
        change = ClockChange(call_s=0.006, queue_s=queue_s)
        return means(Emulator(plans, PROFILE, ClusterShape(tensor=8, change=change)).play(4))

    free, queued = played(0.0), played(0.006)
    assert queued[0] > free[0]
    assert queued[1] > free[1]


def test_books_balance_with_the_power_trace_and_with_time(plans: PlanSet) -> None:
    conditions = Conditions(noise=0.02, trace_bin_s=0.01)
    change = ClockChange(call_s=0.005, settle_up_s=0.02, settle_down_s=0.01, queue_s=0.002)
    cluster = ClusterShape(pipelines=3, tensor=2, change=change, waiting_w={300: 40.0, 1410: 90.0})
    found = Emulator(plans, PROFILE, cluster, conditions=conditions).play(5)
    assert found.trace.energy_j.sum() == pytest.approx(found.total_j, rel=1e-9)
    least_w = 24 * 40.0
    assert found.total_j > least_w * found.job_s.sum()
    assert found.power_w.mean() == pytest.approx(found.total_j / found.job_s.sum(), rel=0.05)


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
    ("text", "slower"),
    [
        ("slow:pipeline=1,factor=1.3,rank=2", True),
        ("slow:pipeline=1,factor=1.3,rank=2,gpu=1", True),
        ("cap:pipeline=1,mhz=1000", True),
        ("link:pipeline=1,seconds=0.02", True),
        ("input:pipeline=1,seconds=0.3", True),
        ("lost:pipeline=1", False),
        ("announced:pipeline=1,factor=1.3", False),
    ],
)
def test_every_trouble_holds_back_its_own_pipeline_alone(plans: PlanSet, text: str, *, slower: bool) -> None:
    emulator = Emulator(plans, PROFILE, ClusterShape(pipelines=3, tensor=2))
    plain = emulator.play(2)
    found = emulator.play(2, [parse_straggler(text)])
    assert found.own_s[0, [0, 2]].tolist() == pytest.approx(plain.own_s[0, [0, 2]].tolist())
    if slower:
        assert found.own_s[0, 1] > 1.01 * plain.own_s[0, 1]
        assert found.job_s[0] == pytest.approx(found.own_s[0, 1])
    else:
        assert found.job_s[0] == pytest.approx(plain.job_s[0])


def test_a_straggler_is_answered_by_the_products_own_decisions(plans: PlanSet) -> None:
    emulator = Emulator(plans, PROFILE, ClusterShape(pipelines=4), conditions=Conditions(noise=0.005))
    slow = parse_straggler("slow:pipeline=2,factor=1.25,from=8,to=24")
    found, unanswered = emulator.play(40, [slow]), emulator.play(40, [slow], answered=False)
    during, after = slice(12, 24), slice(28, 40)
    best = emulator.frontier_index.within(float(found.own_s[during, 2].mean()))
    assert np.abs(found.plan[during, 0] - best).max() <= 3
    assert (found.plan[during, 2] == emulator.frontier_index.fastest).all()
    assert (found.plan[after] == emulator.frontier_index.objective).all()
    assert found.job_s[during].mean() == pytest.approx(unanswered.job_s[during].mean(), rel=0.005)
    assert found.energy_j[during].sum() < 0.93 * unanswered.energy_j[during].sum()


def test_a_capped_pipeline_is_locked_at_a_clock_that_it_holds(plans: PlanSet) -> None:
    emulator = Emulator(plans, PROFILE, ClusterShape(pipelines=3), conditions=Conditions(noise=0.002))
    found = emulator.play(40, [parse_straggler("cap:pipeline=0,mhz=1100,from=4")])
    causes = {one.cause for decision in found.decisions for one in decision.stragglers if one.replica == 0}
    assert Cause.CAPPED in causes


def test_a_lost_pipeline_uses_nothing_and_comes_back(plans: PlanSet) -> None:
    emulator = Emulator(plans, PROFILE, ClusterShape(pipelines=2))
    found = emulator.play(6, [parse_straggler("lost:pipeline=1,from=2,to=4")])
    assert np.isnan(found.own_s[2:4, 1]).all()
    assert not np.isnan(found.own_s[4:]).any()
    whole, half = found.energy_j[1].sum(), found.energy_j[3].sum()
    assert half == pytest.approx(whole / 2, rel=1e-6)
    with pytest.raises(ConfigError, match="all pipelines"):
        emulator.play(2, [parse_straggler("lost:pipeline=1"), parse_straggler("lost:pipeline=0")])


def test_batches_of_other_lengths(plans: PlanSet) -> None:
    longer = Emulator(plans, PROFILE, ClusterShape(), conditions=Conditions(work=(1.0, 1.5))).play(4)
    # a split computation changes its clock after a planned time, whatever the batch's length: a little off
    assert longer.job_s.tolist() == pytest.approx([longer.job_s[0], 1.5 * longer.job_s[0]] * 2, rel=2e-3)


def test_the_same_seed_is_the_same_job(plans: PlanSet) -> None:
    def played() -> np.ndarray:
        conditions = Conditions(noise=0.02, seed=7)
        return Emulator(plans, PROFILE, ClusterShape(pipelines=5), conditions=conditions).play(4).energy_j

    assert (played() == played()).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ClusterShape(pipelines=0), "pipelines"),
        (lambda: ClusterShape(tensor=0), "tensor"),
        (lambda: parse_straggler("sleepy:pipeline=1"), "kind"),
        (lambda: parse_straggler("slow:pipeline=1"), "factor"),
        (lambda: parse_straggler("slow:factor=2"), "pipeline"),
        (lambda: parse_straggler("slow:pipeline=1,factor=2,mhz=1000"), "factor"),
        (lambda: parse_straggler("lost:pipeline=1,seconds=2"), "no amount"),
        (lambda: parse_straggler("slow:pipeline=1,factor=0.5"), "factor"),
        (lambda: parse_straggler("slow:pipeline=-1,factor=2"), "pipeline"),
        (lambda: parse_straggler("slow:pipeline=1,factor=2,where=3"), "where"),
        (lambda: parse_straggler("link:pipeline=1,seconds=nan"), "seconds"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()


def test_what_does_not_exist_in_the_job_is_refused(plans: PlanSet) -> None:
    emulator = Emulator(plans, PROFILE, ClusterShape(pipelines=2))
    for text, message in (
        ("slow:pipeline=2,factor=1.2", "pipeline 2 does not exist"),
        ("slow:pipeline=0,rank=4,factor=1.2", "rank 4 does not exist"),
        ("slow:pipeline=0,rank=0,gpu=1,factor=1.2", "gpu 1 does not exist"),
    ):
        with pytest.raises(ConfigError, match=message):
            emulator.play(1, [parse_straggler(text)])
    with pytest.raises(ConfigError, match="0 iterations"):
        emulator.play(0)
    with pytest.raises(PlanError, match="profile"):
        Emulator(plans, textbook_profile((1.0, 1.0, 1.0)), ClusterShape())


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
    assert conditions.loads is not None
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
        ("[1, 2]", "not a scenario"),
    ],
)
def test_a_scenario_that_makes_no_sense_is_refused_by_file_and_key(
    tmp_path: Path, text: str, key: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=key) as caught:
        read_scenario(file, {})
    assert str(file) in str(caught.value)
    with pytest.raises(ConfigError, match="missing"):
        read_scenario(tmp_path / "missing.yaml", {})
