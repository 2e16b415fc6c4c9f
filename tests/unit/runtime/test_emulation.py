"""Instructions that last as long as on a simulated GPU, alone and with other ranks."""

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from time import sleep

import pytest
from adapter_contract import CallNotes
from lone_job import Post as RankPost
from lone_job import Wanting

from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.physics import Work
from perseus_ds.device.simulated.settings import SimulatedSettings, simulated_settings
from perseus_ds.errors import ConfigError, ProfileError
from perseus_ds.kernels.trace import KERNEL_TRACES, KernelClass, KernelTrace, LaunchSequence
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.emulation import EmulatedRank, Links, LoadShare, Neighbours, routes_of, works_of
from perseus_ds.schedule import Instruction, Kind, Load, Schedule, dag_of, textbook, with_rendezvous

ONE = Batch(1)
WORKS = works_of({0: 1.0}, SimulatedSettings(mean_forward_s=0.4, backward_over_forward=2.0))


class Marking(CallNotes):
    """Notes its calls with the GPU's time."""

    def __init__(self, time: VirtualTime) -> None:
        super().__init__()
        self.time = time
        self.marks: list[tuple[str, float]] = []

    def iteration_begins(self, batch: Batch) -> bool:
        return super().iteration_begins(batch) and batch == ONE

    def note(self, call: str) -> None:
        self.marks.append((call, round(self.time.now_s(), 9)))


def emulated() -> tuple[EmulatedRank, Marking]:
    marking = Marking(VirtualTime())
    rank = EmulatedRank(marking, SimulatedGpu(SimulatedSettings(noise=0.0), time=marking.time), WORKS)
    rank.learn(textbook("1f1b", stages=1, microbatches=1).orders[0], microbatches=1)
    return rank, marking


def run(work: EmulatedRank, *kinds: Kind, batch: Batch = ONE) -> None:
    if work.iteration_begins(batch):
        for kind in kinds:
            work.before(kind)
            work.after(kind)
    work.iteration_ends()


def test_marks_lie_around_the_gpus_work() -> None:
    """A batch that is not wanted takes its time all the same."""
    work, marking = emulated()
    run(work, Kind.FORWARD, Kind.SEND_GRAD, Kind.BACKWARD)
    forward, sent = [("<F", 0.0), ("F>", 0.4)], [("<SG", 0.4), ("SG>", 0.4)]
    assert marking.marks == [("begins 1", 0.0), *forward, *sent, ("<B", 0.4), ("B>", 1.2), ("ends", 1.2)]
    marking.marks.clear()
    run(work, *[Kind.FORWARD] * 2, *[Kind.BACKWARD] * 2, batch=Batch(2))
    assert marking.marks == [("begins 2", 1.2), ("ends", 3.6)]


def test_the_hosts_failure_idles_the_gpu() -> None:
    work, marking = emulated()
    work.iteration_begins(ONE)
    work.before(Kind.FORWARD)
    work.iteration_broke()
    assert marking.marks[-1][0] == "broke"
    run(work, Kind.FORWARD)
    assert marking.time.now_s() == pytest.approx(0.4)


def test_a_waiting_instruction_follows_a_change_from_another_thread() -> None:
    gpu = SimulatedGpu(SimulatedSettings(time="scaled", noise=0.0, time_scale=0.05, switch_latency_s=0.0))
    task = gpu.begin(Work(4.0, memory_bound=0.0))
    gpu.release(task)
    waiting = threading.Thread(target=gpu.wait, args=(task,))
    waiting.start()
    gpu.lock_clock(705)
    waiting.join()
    assert task.ended_s - task.started_s > 5.0


def test_a_larger_microbatch_is_as_much_more_work_both_ways() -> None:
    (work, marking), ends_s = emulated(), []
    for size in (100, 50, 300):
        work.iteration_begins(ONE)
        work.before(Kind.FORWARD, Load(size))
        work.after(Kind.FORWARD)
        work.before(Kind.BACKWARD)
        work.after(Kind.BACKWARD)
        work.iteration_ends()
        ends_s.append(marking.time.now_s())
    assert ends_s == pytest.approx([1.2, 1.2 + 0.6, 1.2 + 0.6 + 3.6])


# How long a stage's forward and backward take on a simulated GPU.


def test_work_is_in_proportion_or_listed_and_a_split_backward_is_two_halves() -> None:
    mean = SimulatedSettings(mean_forward_s=0.4, backward_over_forward=2.0)
    works = works_of({0: 1.0, 1: 2.0, 2: 3.0}, mean)
    assert [works[stage].forward.seconds for stage in range(3)] == pytest.approx([0.2, 0.4, 0.6])
    assert works[0].backward.seconds == pytest.approx(0.4)
    halves = [works[0].of(kind).seconds for kind in (Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)]
    assert halves == pytest.approx([0.2, 0.2])
    none, some = works_of({0: 0.0, 1: 2.0}, SimulatedSettings()).values()
    assert 0 < none.forward.seconds < some.forward.seconds
    listed = SimulatedSettings(forward_s=(0.1, 0.3))
    assert [one.forward.seconds for one in works_of({0: 5.0, 1: 1.0}, listed).values()] == [0.1, 0.3]
    with pytest.raises(ConfigError, match="forward_s"):
        works_of({0: 1.0, 1: 1.0, 2: 1.0}, listed)


def test_a_stage_is_made_of_the_kernels_of_the_trace(tmp_path: Path) -> None:
    product = KernelClass("gemm", ((4096, 2048), (2048, 4096)), "bfloat16")
    norm = KernelClass("layernorm", ((4096, 2048),), "bfloat16")
    launches = {Kind.FORWARD: (0, 1, 0), Kind.BACKWARD: (1, 0, 0, 0, 0)}
    sequences = tuple(LaunchSequence(0, kind, kernels) for kind, kernels in launches.items())
    path = tmp_path / "trace.json"
    KERNEL_TRACES.write(KernelTrace((product, norm), sequences), path)
    settings = SimulatedSettings(kernels=str(path))
    stage = works_of({0: 1.0}, settings)[0]
    once, norm_once = stage.forward.kernels[:2]
    assert stage.forward.seconds == pytest.approx(2 * once.seconds + norm_once.seconds)
    assert stage.of(Kind.BACKWARD).seconds == pytest.approx(4 * once.seconds + norm_once.seconds)
    with pytest.raises(ProfileError, match="stage 1"):
        works_of({0: 1.0, 1: 1.0}, settings)
    with pytest.raises(ProfileError, match="No such"):
        works_of({0: 1.0}, SimulatedSettings(kernels=str(tmp_path / "none.json")))
    with pytest.raises(ConfigError, match="kernels"):
        simulated_settings({"kernels": 3})


# What a load is worth in work, and that every stage works on what the first one counts.

FORWARD = Instruction(1, Kind.FORWARD, 1)
TERMS, MEAN = (0.1, 0.6, 0.3), Load(100.0, 4000.0)


def both(post: RankPost) -> list[LoadShare]:
    """Return the load that ranks of two stages count."""
    return [LoadShare(TERMS, MEAN, messages=post.of(n), first=0, others=[1 - n], rank=n) for n in (0, 1)]


def test_all_stages_work_on_what_the_first_one_knows_beforehand() -> None:
    post = RankPost()
    first, second = both(post)
    first.iteration_begins(Batch(2, loads=(Load(100.0, 4000.0), Load(300.0, 40000.0))))
    second.iteration_begins(Batch(2))
    for stage, one in enumerate((first, second)):
        for kind, shape in ((Kind.FORWARD, Load(50.0, 0.0)), (Kind.BACKWARD, None)):
            assert one.share(Instruction(stage, kind, 1), shape) == pytest.approx(4.9)
    assert post.empty


@pytest.mark.parametrize("counts", [True, False])
def test_all_stages_work_on_what_the_first_one_counts_at_its_forwards(counts: bool) -> None:  # noqa: FBT001
    """A batch that is not known beforehand: the second stage's own shape is what it takes without a count."""
    post = RankPost()
    first, second = both(post)
    shape = Load(50.0, 0.0)
    for tokens in (100.0, 300.0):
        for one in (first, second):
            one.iteration_begins(Batch(2))
        for stage, one in enumerate((first, second)):
            for microbatch in (0, 1):
                counted = Load(tokens * (1 + microbatch), 0.0) if counts else None
                found = one.share(Instruction(stage, Kind.FORWARD, microbatch), shape if stage else counted)
                own = 0.1 + 0.6 * 0.5 if stage else 1.0
                wanted = 0.1 + 0.6 * tokens / 100.0 * (1 + microbatch) if counts else own
                assert found == pytest.approx(wanted)
                assert one.share(Instruction(stage, Kind.BACKWARD, microbatch), None) == found
    assert post.empty


def test_a_batch_of_another_order_leaves_nothing_behind() -> None:
    """Until a size is known its forwards may be taken for the first one: the next batch is right again."""
    post = RankPost()
    first, second = both(post)
    for orders in (((0, 0, 0), (0, 0, 0)), ((0, 1, 2), (0, 1, 2)), ((0, 1, 2), (1, 2, 5)), ((0, 1), (0, 1))):
        for one in (first, second):
            one.iteration_begins(Batch(len(orders[0])))
        known = [Load(100.0 * (1 + n), 0.0) for n in range(len(orders[0]))]
        for microbatch, load in zip(orders[0], known, strict=True):
            first.share(Instruction(0, Kind.FORWARD, microbatch), load)
        found = [second.share(Instruction(1, Kind.FORWARD, one), Load(50.0, 0.0)) for one in orders[1]]
        if orders[0] == orders[1] == tuple(range(len(known))):
            assert found == pytest.approx([0.1 + 0.6 * (1 + n) for n in range(len(known))])


def test_without_terms_work_is_in_proportion_to_the_first_microbatch() -> None:
    share = LoadShare()
    share.iteration_begins(Batch(2))
    assert [share.share(FORWARD, Load(tokens)) for tokens in (50.0, 100.0, 25.0)] == [1.0, 2.0, 0.5]


# Virtual time of several ranks, each a thread: an iteration ends when the schedule's own graph says.

SETTINGS = SimulatedSettings(
    noise=0.0, forward_s=(0.4, 0.1, 0.3), reduce_grads_s=0.05, step_s=0.02, transfer_s=0.007
)
BATCH = Batch(4)
KINDS_OF_TAIL = (Kind.REDUCE_GRADS, Kind.STEP)


def with_tail(schedule: Schedule) -> Schedule:
    orders = tuple(
        (*order, *(Instruction(min(i.stage for i in order), kind, 0) for kind in KINDS_OF_TAIL))
        for order in schedule.orders
    )
    return Schedule(schedule.name, schedule.microbatches, orders)


def run_ranks(
    schedule: Schedule,
    replicas: int = 1,
    *,
    unheard: Collection[Kind] = (),
    iterations: int = 1,
    host_s: float = 0.0,
    settings: SimulatedSettings = SETTINGS,
    slowness: Sequence[float] = (1.0, 1.5),
    coupled: bool = False,
) -> list[Wanting]:
    """Run iterations on a thread per rank; coupled replicas meet within computations, and nowhere else."""
    post, sessions, ranks = RankPost(), [], []
    for rank in range(replicas * schedule.ranks):
        replica, pipeline_rank = divmod(rank, schedule.ranks)
        clock, order = VirtualTime(), schedule.orders[pipeline_rank]
        session = Wanting(SimulatedGpu(SETTINGS, time=clock))
        session.gpu.slowness = slowness[replica]
        pipeline = range(replica * schedule.ranks, (replica + 1) * schedule.ranks)
        alike = range(pipeline_rank, replicas * schedule.ranks, schedule.ranks)
        met, others = ([one for one in row if one != rank] for row in (alike, pipeline))
        neighbours = Neighbours(pipeline, () if coupled else met, others)
        together = alike if coupled else ()
        links = Links(clock, post.of(rank), neighbours, settings, rank=rank, coupled=together)
        works = works_of(dict.fromkeys(range(3), 1.0), SETTINGS)
        carried = EmulatedRank(session, session.gpu, works, links=links)
        carried.learn(order, routes_of(schedule, pipeline_rank), microbatches=BATCH.microbatches)
        ranks.append((carried, [i.kind for i in order if i.kind not in unheard]))
        sessions.append(session)

    def run(carried: EmulatedRank, kinds: list[Kind]) -> None:
        for _ in range(iterations):
            iteration(carried, kinds)
            sleep(host_s)

    threads = [threading.Thread(target=run, args=rank) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive(), "ranks wait for each other"
    return sessions


def iteration(carried: EmulatedRank, kinds: list[Kind]) -> None:
    assert carried.iteration_begins(BATCH)
    for kind in kinds:
        carried.before(kind)
        carried.after(kind)
    carried.iteration_ends()


def ends_by_the_graph(schedule: Schedule) -> dict[Instruction, float]:
    """The oracle: the longest path through the graph that plans are made on."""
    graph = dag_of(schedule)
    own = {Kind.FORWARD: 1.0, Kind.BACKWARD: 2.0}
    forward_s = SETTINGS.forward_s
    fixed = {Kind.REDUCE_GRADS: SETTINGS.reduce_grads_s, Kind.STEP: SETTINGS.step_s}

    def lasts_s(node: Instruction) -> float:
        if node.kind in own:
            return own[node.kind] * forward_s[node.stage]
        return SETTINGS.transfer_s if node.kind.is_transfer else fixed.get(node.kind, 0.0)

    durations = [lasts_s(node) for node in graph.nodes]
    delays = dict.fromkeys(graph.buffered.values(), SETTINGS.transfer_s)
    starts = graph.earliest_starts(durations, delays)
    return {node: start + lasts for node, start, lasts in zip(graph.nodes, starts, durations, strict=True)}


SCHEDULES = {
    "rendezvous": with_rendezvous(textbook("1f1b", stages=3, microbatches=4)),
    "buffered": textbook("1f1b", stages=3, microbatches=4),
    "gpipe, buffered": textbook("gpipe", stages=3, microbatches=4),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_computation_ends_when_the_graph_says(name: str) -> None:
    schedule = with_tail(SCHEDULES[name])
    ends_s = ends_by_the_graph(schedule)
    for order, session in zip(schedule.orders, run_ranks(schedule), strict=True):
        for instruction, end_s in zip(order, session.ends_s, strict=True):
            if instruction.kind.is_computation or instruction.kind is Kind.REDUCE_GRADS:
                assert end_s == pytest.approx(ends_s[instruction], abs=1e-9), instruction


def test_replicas_leave_the_reduction_together_and_ranks_of_a_pipeline_the_step() -> None:
    """The norm of the gradients waits for the last of them, within the iteration."""
    schedule = with_tail(SCHEDULES["buffered"])
    sessions = run_ranks(schedule, replicas=2)
    for rank in range(schedule.ranks):
        fast, slow = sessions[rank], sessions[schedule.ranks + rank]
        assert fast.ends_s[-2] == pytest.approx(slow.ends_s[-2], abs=1e-9)
        assert fast.starts_s[-2] < slow.starts_s[-2]
    pipeline = sessions[: schedule.ranks]
    assert len({round(session.ends_s[-1], 9) for session in pipeline}) == 1
    assert len({round(session.starts_s[-1], 9) for session in pipeline}) == schedule.ranks


def test_no_rank_begins_an_iteration_before_all_ended_the_last() -> None:
    schedule = SCHEDULES["buffered"]
    sessions = run_ranks(schedule, iterations=2)
    ends_s = [one.ends_s[len(order) - 1] for one, order in zip(sessions, schedule.orders, strict=True)]
    assert max(ends_s) > 1.2 * min(ends_s)
    assert all(session.begins_s[1] >= max(ends_s) for session in sessions)


def test_transfers_behind_the_last_announced_instruction_are_carried_out() -> None:
    """An order that ends with a send which nobody announces: its receiver waits for it."""
    schedule = SCHEDULES["rendezvous"]
    silent = {Kind.COMMIT, *(kind for kind in Kind if kind.is_transfer)}
    ends_s = ends_by_the_graph(schedule)
    for order, session in zip(schedule.orders, run_ranks(schedule, unheard=silent), strict=True):
        computed = [i for i in order if i.kind.is_computation]
        for instruction, end_s in zip(computed, session.ends_s, strict=True):
            assert end_s == pytest.approx(ends_s[instruction], abs=1e-9), instruction


def gap_s(**words: object) -> float:
    """Virtual seconds between two iterations of a rank alone."""
    alone = with_tail(textbook("1f1b", stages=1, microbatches=4))
    settings = replace(SETTINGS, forward_s=(0.4,), **words)
    (session,) = run_ranks(alone, iterations=2, host_s=0.12, settings=settings)
    return session.begins_s[1] - session.ends_s[len(alone.orders[0]) - 1]


def test_what_a_host_does_between_iterations_counts_in_whole_steps() -> None:
    """A busy host sleeps longer than asked, never less; what is shorter than a step is its own pace."""
    found_s = gap_s(host_step_s=0.05, time_scale=0.1)
    assert found_s >= 1.0 - 1e-9
    assert found_s / 0.5 == pytest.approx(round(found_s / 0.5))
    assert gap_s(host_step_s=60.0) == 0.0


# Ranks that meet within computations, each a thread: all are as late as the slowest, and wait at no work.


def run_coupled(*slowness: float) -> list[Wanting]:
    one_stage = textbook("1f1b", stages=1, microbatches=4)
    return run_ranks(one_stage, len(slowness), slowness=slowness, coupled=True)


def test_every_computation_is_as_long_as_that_of_the_slowest() -> None:
    [alone] = run_coupled(1.05)
    for session in run_coupled(1.0, 1.05, 0.9):
        assert session.ends_s == pytest.approx(alone.ends_s, abs=1e-9)


def test_who_waits_burns_the_power_of_waiting() -> None:
    slow, alone, fast = (one.gpu.true_now() for one in (*run_coupled(1.05, 1.0), *run_coupled(1.0)))
    assert slow.time_s == pytest.approx(alone.time_s)
    waiting_w = (alone.energy_j - fast.energy_j) / (alone.time_s - fast.time_s)
    assert 0.0 < waiting_w < 0.5 * fast.energy_j / fast.time_s


def test_who_is_not_listened_to_meets_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    [alone] = run_coupled(1.05)
    monkeypatch.setattr(Wanting, "iteration_begins", lambda *_: False)
    for session in run_coupled(1.0, 1.05):
        assert session.ends_s == []
        assert session.gpu.true_now().time_s == pytest.approx(alone.ends_s[-1])
