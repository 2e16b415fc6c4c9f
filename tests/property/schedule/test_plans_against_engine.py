"""Plans of schedules with chunks, split backwards and buffered transfers, against ranks that simply run."""

import pytest
from cli_program import BLOCKING_W, points
from schedules import run

from perseus_ds.plan import PlanSet, build
from perseus_ds.plan.clock_requests import play, play_baseline
from perseus_ds.profile import Profile
from perseus_ds.schedule import Kind, Schedule, textbook, with_rendezvous

SECONDS = {
    Kind.FORWARD: 0.05,
    Kind.BACKWARD: 0.1,
    Kind.BACKWARD_INPUT: 0.055,
    Kind.BACKWARD_WEIGHT: 0.045,
    Kind.FORWARD_BACKWARD: 0.135,
}


def profile_of(schedule: Schedule) -> Profile:
    """Later stages are heavier, and what they send is longer on its way."""
    stages = range(schedule.stages)
    return Profile(
        {(s, k): points(t * (1 + 0.05 * s)) for s in stages for k, t in SECONDS.items()},
        fixed_s={(s, k): 0.004 + 0.001 * s for s in stages for k in (Kind.SEND_ACTIVATION, Kind.SEND_GRAD)},
        blocking_power_w=BLOCKING_W,
    )


SCHEDULES = {
    "interleaved": textbook("interleaved", stages=6, microbatches=4, chunks=3),
    "interleaved-zb": textbook("interleaved-zb", stages=4, microbatches=4, chunks=2),
    "interleaved-fb": textbook("interleaved-fb", stages=6, microbatches=6, chunks=2),
    "zb-h1": textbook("zb-h1", stages=3, microbatches=5),
    "zbv": textbook("zbv", stages=4, microbatches=4),
    "dualpipe-v": textbook("dualpipe-v", stages=4, microbatches=5),
    "megatron's 1f1b": with_rendezvous(textbook("1f1b", stages=3, microbatches=5)),
}


@pytest.fixture(scope="module", params=SCHEDULES)
def plans(request: pytest.FixtureRequest) -> PlanSet:
    schedule = SCHEDULES[request.param]
    return build(profile_of(schedule), schedule, blocking_power_w=BLOCKING_W, verify=True)


def test_planned_times_are_those_of_an_engine(plans: PlanSet) -> None:
    """Every tenth plan run step by step; the baseline as well."""
    words = [[str(i) for i in order] for order in plans.schedule.orders]
    for played, iteration_s in [
        (play_baseline(plans), plans.baseline.iteration_time_s),
        *((play(plans.plan(n)), plans.iteration_time_s[n]) for n in range(0, len(plans), 10)),
    ]:
        lasts = {str(one.instruction): one.duration_s for one in played}
        ends = run(
            words,
            lambda word, lasts=lasts: lasts.get(word, 0.0),
            lambda stage, letters: plans.fixed_s.get((stage, Kind(letters)), 0.0),
        )
        assert max(ends.values()) == pytest.approx(iteration_s)
        for one in played:
            assert ends[str(one.instruction)] == pytest.approx(one.end_s)


def test_transfers_take_their_time(plans: PlanSet) -> None:
    """The first result has to cross to the last rank: that many transfers before it begins."""
    ranks = plans.schedule.rank_of_stages()
    starts = {str(one.instruction): one.start_s for one in play_baseline(plans)}
    crossed = [s for s in range(plans.schedule.stages - 1) if ranks[s] != ranks[s + 1]]
    work_s = sum(SECONDS[Kind.FORWARD] * (1 + 0.05 * s) for s in range(plans.schedule.stages - 1))
    on_the_way_s = sum(0.004 + 0.001 * s for s in crossed)
    assert starts[f"{plans.schedule.stages - 1}F0"] >= work_s + on_the_way_s - 1e-9


def test_waiting_is_paid_for_every_rank_not_for_every_stage(plans: PlanSet) -> None:
    played = play(plans.plan(0))
    working_s = sum(one.duration_s for one in played if one.instruction.kind.is_computation)
    waiting_s = plans.schedule.ranks * plans.plan(0).iteration_time_s - working_s
    spent_j = sum(one.energy_j for one in played) + BLOCKING_W * waiting_s
    assert plans.plan(0).energy_j == pytest.approx(spent_j)
    assert plans.blocking_total_w == BLOCKING_W * len(plans.schedule.orders)
