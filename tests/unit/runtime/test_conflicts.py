"""Who says a conflict, how often, and what is counted."""

import json
from pathlib import Path

import pytest
from lone_job import NotingGpu

from perseus_ds.device.clock_agenda import DatedClock
from perseus_ds.device.clock_change import AskedClocks, is_capped
from perseus_ds.device.gpu import Achieved, ConflictKind, EventReason, Sighting
from perseus_ds.errors import DeviceError, DeviceLostError, DeviceUnavailableError
from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.conflicts import KINDS, ConflictMonitor
from perseus_ds.runtime.event_log import EventLog


class ContestedGpu(NotingGpu):
    """A GPU that others work on."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Sighting] = []
        self.why: DeviceError | None = None

    def conflicts(self) -> tuple[Sighting, ...]:
        return tuple(self.seen)

    def given_up(self) -> DeviceError | None:
        return self.why


@pytest.fixture
def gpu() -> ContestedGpu:
    return ContestedGpu()


def conflict_monitor(gpu: ContestedGpu, folder: Path, rank: int = 0) -> ConflictMonitor:
    directory, log = RunDirectory(folder), EventLog(rank)
    log.writes_to(directory)
    return ConflictMonitor(gpu, log, rank=rank, directory=directory)


NOBODY: tuple[int, ...] = ()


def unpublished(*, by: int) -> tuple[int, ...]:
    """One rank has something to tell of the power cap."""
    return tuple((by + 1) * (kind is ConflictKind.POWER_CAP) for kind in ConflictKind)


CAPPED = Sighting(
    ConflictKind.POWER_CAP, "the power cap holds the clock down: 900 MHz asked, 800 MHz seen", 7
)


def test_each_kind_is_said_once_and_recorded_for_every_rank(
    gpu: ContestedGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = conflict_monitor(gpu, tmp_path)
    gpu.seen = [CAPPED]
    assert here.check() is None
    for tellers in (NOBODY, unpublished(by=1), here.report(), here.report()):
        here.learn(tellers)
    assert here.report() == NOBODY
    (line,) = capsys.readouterr().err.splitlines()
    assert "rank 1" in line
    assert "power cap" in line
    recorded = [
        (event["event"], event["kind"], event["rank"]) for event in read_events(tmp_path / "events.jsonl")
    ]
    assert recorded == [("conflict", "power_cap", 1), ("conflict", "power_cap", 0)]


def test_other_ranks_are_silent(
    gpu: ContestedGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu.seen = [CAPPED]
    there = conflict_monitor(gpu, tmp_path, rank=3)
    there.check()
    there.learn(there.report())
    assert capsys.readouterr().err == ""
    assert not (tmp_path / "events.jsonl").exists()


def test_the_reason_for_giving_up_is_handed_over(gpu: ContestedGpu, tmp_path: Path) -> None:
    gpu.why = DeviceUnavailableError("somebody else changed the clock")
    assert conflict_monitor(gpu, tmp_path).check() is gpu.why


def test_a_lost_gpu_counts_though_nobody_saw_it_go(gpu: ContestedGpu, tmp_path: Path) -> None:
    here = conflict_monitor(gpu, tmp_path)
    here.note_failure(DeviceLostError("GPU 0: read energy: the GPU is lost"))
    assert [one.kind for one in here.sightings()] == [ConflictKind.GPU_LOST]
    assert [event["kind"] for event in read_events(tmp_path / "events.jsonl")] == ["gpu_lost"]


def test_counts_are_added_to_what_stands_in_the_ranks_file(gpu: ContestedGpu, tmp_path: Path) -> None:
    here = conflict_monitor(gpu, tmp_path)
    here.write()
    assert not (tmp_path / "ranks").exists()
    file = tmp_path / "ranks" / "rank_00000.json"
    file.parent.mkdir()
    file.write_text('{"rank": 0, "stage": 4}')
    gpu.seen = [CAPPED]
    here.write()
    content = json.loads(file.read_text())
    assert content["stage"] == 4
    assert content["conflicts"] == [{"kind": "power_cap", "line": CAPPED.line, "count": 7}]


def test_what_a_failing_rank_has_seen_is_told_the_others(gpu: ContestedGpu, tmp_path: Path) -> None:
    here = conflict_monitor(gpu, tmp_path, rank=2)
    here.note_failure(DeviceLostError("GPU 2: read energy: the GPU is lost"))
    assert set(here.report()) == {0, 3}


def test_of_two_ranks_that_see_the_same_both_are_heard_in_turn(tmp_path: Path) -> None:
    """The exchange keeps the greatest of each place: the last rank is observed first, then falls silent."""
    first, second = ContestedGpu(), ContestedGpu()
    ranks = [conflict_monitor(first, tmp_path, rank=0), conflict_monitor(second, tmp_path, rank=1)]
    for rank, gpu in zip(ranks, (first, second), strict=True):
        gpu.seen = [CAPPED]
        rank.check()
    for _ in range(3):
        announced = [rank.report() or (0,) * 8 for rank in ranks]
        for rank in ranks:
            rank.learn(list(map(max, *announced)))
    recorded = [(event["kind"], event["rank"]) for event in read_events(tmp_path / "events.jsonl")]
    assert recorded == [("power_cap", 1), ("power_cap", 0)]


# Control that is lost and comes back: one line for each, however many ranks lose it and however soon.

LOST, BACK = ConflictKind.CONTROL_LOST, ConflictKind.CONTROL_BACK


class LeasedGpu(NotingGpu):
    """A GPU whose service comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.losses = self.returns = 0
        self.doubted = False

    def conflicts(self) -> tuple[Sighting, ...]:
        counts = ((LOST, self.losses), (BACK, self.returns))
        return tuple(Sighting(kind, kind.text, count) for kind, count in counts if count)

    def in_control(self) -> bool:
        return self.losses == self.returns and not self.doubted


class Ranks:
    """The ranks of a job, whose reports travel as in an exchange: the greatest of each place."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.gpus = [LeasedGpu() for _ in range(ranks)]
        self.folder, directory = folder, RunDirectory(folder)
        self.monitors = []
        for rank, gpu in enumerate(self.gpus):
            log = EventLog(rank)
            log.writes_to(directory)
            self.monitors.append(ConflictMonitor(gpu, log, rank=rank, directory=directory))

    def iterate(self, times: int = 1) -> None:
        for _ in range(times):
            for monitor in self.monitors:
                assert monitor.check() is None
            told = [monitor.report() or (0,) * KINDS for monitor in self.monitors]
            for monitor in self.monitors:
                monitor.learn(list(map(max, *told, (0,) * KINDS)))

    def recorded(self) -> list[tuple[str, int]]:
        return [(event["kind"], event["rank"]) for event in read_events(self.folder / "events.jsonl")]


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    return ["lost" if LOST.text in line else "back" if BACK.text in line else line for line in lines]


def test_every_loss_and_every_return_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = Ranks(tmp_path, 4)
    for _ in range(2):
        for gpu in ranks.gpus:
            gpu.losses += 1
        ranks.iterate(6)
        assert said(capsys) == ["lost"]
        for gpu in ranks.gpus:
            gpu.returns += 1
        ranks.iterate(6)
        assert said(capsys) == ["back"]
    for kind in ("control_lost", "control_back"):
        assert sorted(ranks.recorded()).count((kind, 2)) == 2


def test_what_comes_back_within_an_iteration_is_said_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = Ranks(tmp_path, 3)
    for gpu in ranks.gpus:
        gpu.losses = gpu.returns = 1
    ranks.iterate(8)
    assert said(capsys) == ["lost", "back"]
    assert len(ranks.recorded()) == 6


def test_an_iteration_counts_only_where_clocks_were_ours_from_its_beginning_to_its_end(
    tmp_path: Path,
) -> None:
    [gpu], [monitor] = (ranks := Ranks(tmp_path, 1)).gpus, ranks.monitors
    counted = []
    for change in ("", "losses", "", "returns", "", "both", ""):
        gpu.losses += change in {"losses", "both"}
        gpu.returns += change in {"returns", "both"}
        gpu.time_s += 1.0
        monitor.check()
        counted.append(monitor.control.controlled)
    assert counted == [True, False, False, False, True, False, True]
    assert monitor.control.uncontrolled_s == 6.0


def test_a_guard_that_does_not_answer_for_a_while_is_doubted_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = Ranks(tmp_path, 1)
    ranks.gpus[0].doubted = True
    ranks.iterate(3)
    assert not ranks.monitors[0].control.controlled
    ranks.gpus[0].doubted = False
    ranks.iterate(2)
    assert ranks.monitors[0].control.controlled
    assert said(capsys) == []


# Whether a device is held below what is asked: by its clock, and never by its reasons.

SETTLE_S = 0.1


def asked(*requests: tuple[float, int | None]) -> AskedClocks:
    history = AskedClocks()
    for due_s, clock_mhz in requests:
        history.put(DatedClock(due_s, clock_mhz))
    return history


def seen(*looks: tuple[float, int], reasons: EventReason = EventReason.NONE) -> list[tuple[float, Achieved]]:
    return [(time_s, Achieved(clock_mhz, 1593, reasons)) for time_s, clock_mhz in looks]


def test_a_power_cap_bit_at_a_clock_that_holds_is_no_cap() -> None:
    """The normal state of a loaded H100: every straggler was once answered as capped."""
    looks = seen((1.0, 1410), (1.3, 1400), (1.6, 1410), reasons=EventReason.SW_POWER_CAP)
    assert not is_capped(looks, asked((0.0, 1410)), settle_s=SETTLE_S)


def test_a_clock_that_is_not_reached_is_a_cap_without_any_reason() -> None:
    looks = seen((1.0, 1250), (1.3, 1245), (1.6, 1410))
    assert is_capped(looks, asked((0.0, 1410)), settle_s=SETTLE_S)


def test_looks_count_for_what_was_asked_for_then_and_had_settled() -> None:
    history = asked((0.0, 1410), (1.0, 900), (2.0, 1410))
    assert not is_capped(seen((0.5, 1410), (1.05, 1410), (1.5, 900), (2.05, 900)), history, settle_s=SETTLE_S)
    assert is_capped(seen((0.5, 1300), (1.5, 900), (2.5, 1300)), history, settle_s=SETTLE_S)


def test_what_the_device_chooses_by_itself_is_no_cap() -> None:
    assert not is_capped(seen((1.0, 1200)), asked((0.0, None)), settle_s=SETTLE_S)
    assert not is_capped(seen((1.0, 1200)), asked(), settle_s=SETTLE_S)
    assert not is_capped([], asked((0.0, 1410)), settle_s=SETTLE_S)


def test_a_request_that_gave_way_was_never_asked_for() -> None:
    history = asked((0.0, 900), (5.0, 1410), (1.0, 1200))
    assert history.steady_mhz(5.5, 6.0) == 1200
