"""Instructions that last as long as on a simulated GPU: a listener in front of the session's."""

import threading
from collections import defaultdict, deque
from pathlib import Path

import pytest
from adapter_contract import CallNotes

from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.physics import KernelSequence, Work
from perseus_ds.device.simulated.settings import SimulatedSettings, simulated_settings
from perseus_ds.errors import ConfigError, ProfileError
from perseus_ds.kernels.trace import KernelClass, KernelTrace, LaunchSequence, write_trace
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.emulation import EmulatedRank, LoadShare, works_of
from perseus_ds.schedule import Instruction, Kind, Load, textbook

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


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def gpu(time: VirtualTime) -> SimulatedGpu:
    return SimulatedGpu(SimulatedSettings(noise=0.0), time=time)


def emulated(marking: Marking, gpu: SimulatedGpu) -> EmulatedRank:
    rank = EmulatedRank(marking, gpu, WORKS)
    rank.learn(textbook("1f1b", stages=1, microbatches=1).orders[0], microbatches=1)
    return rank


def run(work: EmulatedRank, *kinds: Kind, batch: Batch = ONE) -> None:
    if work.iteration_begins(batch):
        for kind in kinds:
            work.before(kind)
            work.after(kind)
    work.iteration_ends()


def test_marks_lie_around_the_gpus_work(gpu: SimulatedGpu, time: VirtualTime) -> None:
    marking = Marking(time)
    run(emulated(marking, gpu), Kind.FORWARD, Kind.SEND_GRAD, Kind.BACKWARD)
    assert marking.marks == [
        ("begins 1", 0.0),
        ("<F", 0.0),
        ("F>", 0.4),
        ("<SG", 0.4),
        ("SG>", 0.4),
        ("<B", 0.4),
        ("B>", 1.2),
        ("ends", 1.2),
    ]


def test_a_batch_that_is_not_wanted_takes_its_time_all_the_same(gpu: SimulatedGpu, time: VirtualTime) -> None:
    marking = Marking(time)
    run(emulated(marking, gpu), *[Kind.FORWARD] * 2, *[Kind.BACKWARD] * 2, batch=Batch(2))
    assert marking.marks == [("begins 2", 0.0), ("ends", 2.4)]


def test_the_hosts_failure_leaves_the_gpu_idle(gpu: SimulatedGpu, time: VirtualTime) -> None:
    marking = Marking(time)
    work = emulated(marking, gpu)
    work.iteration_begins(Batch(1))
    work.before(Kind.FORWARD)
    work.iteration_broke()
    assert marking.marks[-1][0] == "broke"
    run(work, Kind.FORWARD)
    assert time.now_s() == pytest.approx(0.4)


def test_a_waiting_instruction_follows_a_change_from_another_thread() -> None:
    gpu = SimulatedGpu(SimulatedSettings(time="scaled", noise=0.0, time_scale=0.05, switch_latency_s=0.0))
    task = gpu.begin(Work(4.0, memory_bound=0.0))
    gpu.release(task)
    waiting = threading.Thread(target=gpu.wait, args=(task,))
    waiting.start()
    gpu.lock_clock(705)
    waiting.join()
    assert task.ended_s - task.started_s > 5.0


def test_a_larger_microbatch_is_as_much_more_work_both_ways(gpu: SimulatedGpu, time: VirtualTime) -> None:
    work = emulated(Marking(time), gpu)
    spans = []
    for size in (100, 50, 300):
        begun_s = time.now_s()
        work.iteration_begins(ONE)
        work.before(Kind.FORWARD, Load(size))
        work.after(Kind.FORWARD)
        work.before(Kind.BACKWARD)
        work.after(Kind.BACKWARD)
        work.iteration_ends()
        spans.append(time.now_s() - begun_s)
    assert spans == pytest.approx([1.2, 0.6, 3.6])


# How long a stage's forward and backward take on a simulated GPU.


def test_work_is_in_proportion_and_the_mean_is_the_setting() -> None:
    settings = SimulatedSettings(mean_forward_s=0.4, backward_over_forward=2.0)
    works = works_of({0: 1.0, 1: 2.0, 2: 3.0}, settings)
    assert [round(works[stage].forward.seconds, 9) for stage in range(3)] == [0.2, 0.4, 0.6]
    assert works[0].backward.seconds == pytest.approx(0.4)


def test_a_stage_without_weights_still_takes_some_time() -> None:
    works = works_of({0: 0.0, 1: 2.0}, SimulatedSettings())
    assert 0 < works[0].forward.seconds < works[1].forward.seconds


def test_listed_stages_take_what_is_listed() -> None:
    settings = SimulatedSettings(forward_s=(0.1, 0.3))
    works = works_of({0: 5.0, 1: 1.0}, settings)
    assert [works[stage].forward.seconds for stage in range(2)] == [0.1, 0.3]
    with pytest.raises(ConfigError, match="forward_s"):
        works_of({0: 1.0, 1: 1.0, 2: 1.0}, settings)


def test_a_split_backward_is_two_halves_of_a_whole_one() -> None:
    work = works_of({0: 1.0}, SimulatedSettings())[0]
    halves = [work.of(kind).seconds for kind in (Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)]
    assert halves[0] == halves[1]
    assert sum(halves) == pytest.approx(work.of(Kind.BACKWARD).seconds)


def test_a_stage_is_made_of_the_kernels_of_the_trace(tmp_path: Path) -> None:
    product = KernelClass("gemm", ((4096, 2048), (2048, 4096)), "bfloat16")
    norm = KernelClass("layernorm", ((4096, 2048),), "bfloat16")
    sequences = (
        LaunchSequence(0, Kind.FORWARD, (0, 1, 0)),
        LaunchSequence(0, Kind.BACKWARD, (1, 0, 0, 0, 0)),
    )
    path = tmp_path / "trace.json"
    write_trace(KernelTrace((product, norm), sequences), path)
    settings = SimulatedSettings(kernels=str(path))
    stage = works_of({0: 1.0}, settings)[0]
    assert isinstance(stage.forward, KernelSequence)
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


class Post:
    """Numbers on their way between two ranks, in order."""

    def __init__(self) -> None:
        self.boxes: dict[tuple[int, int], deque[float]] = defaultdict(deque)

    def send(self, to: int, tag: int, moment_s: float) -> None:
        self.boxes[to, tag].append(moment_s)

    def of(self, rank: int) -> "Inbox":
        return Inbox(self, rank)


class Inbox:
    def __init__(self, post: Post, rank: int) -> None:
        self.post, self.rank, self.send = post, rank, post.send

    def receive(self, source: int, tag: int) -> float:
        del source
        return self.post.boxes[self.rank, tag].popleft()


def both(post: Post) -> list[LoadShare]:
    """What the ranks of two stages take a load for."""
    return [
        LoadShare(TERMS, MEAN, messages=post.of(rank), first=0, others=[1 - rank], rank=rank)
        for rank in (0, 1)
    ]


def test_all_stages_work_on_what_the_first_one_knows_beforehand() -> None:
    post = Post()
    first, second = both(post)
    first.iteration_begins(Batch(2, loads=(Load(100.0, 4000.0), Load(300.0, 40000.0))))
    second.iteration_begins(Batch(2))
    for stage, one in enumerate((first, second)):
        for kind, shape in ((Kind.FORWARD, Load(50.0, 0.0)), (Kind.BACKWARD, None)):
            assert one.share(Instruction(stage, kind, 1), shape) == pytest.approx(4.9)
    assert not any(post.boxes.values())


@pytest.mark.parametrize("counts", [True, False])
def test_all_stages_work_on_what_the_first_one_counts_at_its_forwards(counts: bool) -> None:  # noqa: FBT001
    """A batch that is not known beforehand: the second stage's own shape is what it takes without a count."""
    post = Post()
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
    assert not any(post.boxes.values())


def test_a_batch_of_another_order_leaves_nothing_behind() -> None:
    """Until a size is known its forwards may be taken for the first one: the next batch is right again."""
    post = Post()
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


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ({"load_terms": [0.1, 0.9]}, "load_terms"),
        ({"load_terms": [0.1, 0.9, -0.1], "mean_load": [1, 1]}, r"load_terms\[2\]"),
        ({"load_terms": [0.1, 0.6, 0.3]}, "belong together"),
        ({"load_terms": [0.1, 0.6, 0.3], "mean_load": [0, 1]}, r"mean_load\[0\]"),
    ],
)
def test_terms_that_mean_nothing_are_refused(block: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        simulated_settings(block)
    assert simulated_settings({"load_terms": [0.1, 0.6, 0.3], "mean_load": [9, 9]}) == SimulatedSettings(
        load_terms=(0.1, 0.6, 0.3), mean_load=(9, 9)
    )
