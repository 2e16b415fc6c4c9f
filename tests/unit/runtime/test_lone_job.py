"""From the first iteration to a measured saving, and all that may come between, in one process."""

import atexit
import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch.distributed as dist
from lone_job import KINDS, Loop, LoopAdapter, block_of, events_of, gpu, names_of, served, train

from perseus_ds.config import parse
from perseus_ds.device.gpu import Achieved, EventReason
from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.device.simulated.models import model_named
from perseus_ds.errors import DeviceUnavailableError, EngineError
from perseus_ds.files import KEY, digest_of
from perseus_ds.plan import read_plans
from perseus_ds.plan.clock_requests import play
from perseus_ds.plan.file import dumps
from perseus_ds.profile import read_profile
from perseus_ds.run_directory.paths import write_json
from perseus_ds.run_directory.records import read_places, read_ranks, read_summary, read_timelines
from perseus_ds.runtime import attach
from perseus_ds.runtime.adapter import InstructionListener
from perseus_ds.runtime.attach import activate, begin, deactivate, session_of
from perseus_ds.runtime.kernel_tracing import SETTLING
from perseus_ds.runtime.rendezvous import RendezvousResult
from perseus_ds.schedule import Kind

pytestmark = pytest.mark.usefixtures("process_group")


@pytest.fixture(scope="module")
def done(process_group: None, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A job that has gone the whole course, and left."""
    clocks_mhz: set[int] = set()
    with served(run_dir := tmp_path_factory.mktemp("job") / "run") as loop:
        train(loop, run_dir, "running")
        loop.look = lambda: clocks_mhz.add(gpu().achieved().clock_mhz)
        train(loop, run_dir, "measured")
    return SimpleNamespace(run_dir=run_dir, loop=loop, clocks_mhz=clocks_mhz)


def test_what_it_wrote_fits_together_and_is_told_as_simulated(done: SimpleNamespace) -> None:
    profile, plans = read_profile(done.run_dir / "profile.json"), read_plans(done.run_dir / "plan.json")
    assert len(profile.clocks_mhz) == 4
    [running] = events_of(done.run_dir, "running")
    chosen = plans.plan(running["plan"])
    slower = chosen.iteration_time_s / plans.baseline.iteration_time_s - 1.0
    assert 0.05 < slower <= 0.1 * (1.0 + 1e-9), "a plan that uses the slowdown that is allowed"
    planned_mhz = {part.clock_mhz for one in play(chosen) for part in one.parts}
    assert min(planned_mhz) < max(profile.clocks_mhz)
    assert done.clocks_mhz == planned_mhz | {max(profile.clocks_mhz)}, "the plan's, and audits at the highest"
    told = {event["event"] for event in events_of(done.run_dir) if "(simulated)" in str(event.get("line"))}
    assert {"profiling", "profiled", "running"} <= told


def test_the_measured_saving_is_the_true_one(done: SimpleNamespace) -> None:
    summary = read_summary(done.run_dir / "summary.json")
    assert summary.saving_pct == pytest.approx(
        17.45, abs=1.0
    )  # as 1 000 iterations show, half of them audits
    error_pct = math.hypot(summary.saving_within_pct, summary.facts["predicted_saving_within_pct"])
    assert abs(summary.saving_pct - summary.predicted_saving_pct) <= 2.0 * error_pct


FREE_FORM = {"fingerprint", "blocking_w", "facts", "totals", "temperature_c"}
READERS: dict[str, Callable[[Path], object]] = {
    "profile.json": read_profile,
    "plan.json": lambda file: dumps(read_plans(file)),
    "summary.json": read_summary,
    "timelines.json": read_timelines,
    "places.json": read_places,
    "ranks/rank_00000.json": lambda file: read_ranks(file.parent),
}


def with_novel_keys(content: object, name: str = "") -> object:
    """The same with a key of a newer release in every object."""
    if isinstance(content, list):
        return [with_novel_keys(one) for one in content]
    if not isinstance(content, dict) or name in FREE_FORM:
        return content
    novel: dict[str, object] = {key: with_novel_keys(value, key) for key, value in content.items()}
    novel["novel"] = {"x": [1]}
    return novel | ({KEY: digest_of(novel)} if KEY in novel else {})


@pytest.mark.parametrize("file", READERS)
def test_keys_of_a_newer_release_are_read_over(done: SimpleNamespace, tmp_path: Path, file: str) -> None:
    content = json.loads((done.run_dir / file).read_text())
    novel = tmp_path / file
    write_json(novel, with_novel_keys(content))
    assert '"novel"' in novel.read_text()
    assert READERS[file](novel) == READERS[file](done.run_dir / file)


def test_it_shows_scalars_and_leaves_the_loop_as_it_was(done: SimpleNamespace) -> None:
    assert done.loop.scalars[-1]["saving_pct"] > 5.0
    assert done.loop.listener is None
    before = names_of(done.run_dir)
    done.loop.step()
    assert names_of(done.run_dir) == before


def test_a_plan_of_a_cooler_room_is_named_by_the_field_that_differs(done: SimpleNamespace) -> None:
    assert "other_temperature" not in names_of(done.run_dir)
    with served(done.run_dir) as loop:
        gpu().throttle(warmer_k=20.0)
        train(loop, done.run_dir, "measured", times=2)
    [told] = events_of(done.run_dir, "other_temperature")
    assert told["line"].startswith("temperature_c")
    assert "remove profile.json" in told["line"]


def test_traced_iterations_run_at_the_highest_clock(tmp_path: Path) -> None:
    """Clocks are changed to be timed only when they are over."""
    locks = []
    with served(run_dir := tmp_path / "run", trace_kernels=2) as loop:
        while "calibrated" not in names_of(run_dir):
            locks.append(gpu().truth.locks)
            loop.step()
            assert loop.iterations < 12
    assert not any(locks[: SETTLING + 2])


def test_profile_stays_at_the_highest_clock_afterwards(tmp_path: Path) -> None:
    with served(run_dir := tmp_path / "run", mode="profile") as loop:
        train(loop, run_dir, "profiled")
        for _ in range(12):
            loop.step()
        assert gpu().achieved().clock_mhz == 1410
    assert "running" not in names_of(run_dir)


def test_a_program_may_leave_its_folder_while_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (other := tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with served(Path("run"), metrics={"enabled": True, "folder": "metrics"}) as loop:
        monkeypatch.chdir(other)
        train(loop, tmp_path / "run", "profiling")
    assert list(other.iterdir()) == []
    assert not (tmp_path / "run" / "lock.json").exists()


@pytest.mark.parametrize("policy", ["no_slowdown", "min_energy"])
def test_a_job_without_slack_is_told_that_nothing_can_be_saved_at_no_slowdown(
    tmp_path: Path, policy: str
) -> None:
    with served(tmp_path / "run", mode="observe", objective={"policy": policy}):
        assert ("no_slack" in names_of(tmp_path / "run")) == (policy == "no_slowdown")


@pytest.mark.thorough
def test_a_job_whose_process_group_is_made_anew_is_served_anew(tmp_path: Path) -> None:
    first, second, run_dir = Loop(), Loop(), tmp_path / "run"
    activate(first, partial(LoopAdapter, first), block=block_of(run_dir))
    stranded = session_of(first)
    train(first, run_dir, "calibrated")
    attach._end(os.getpid() + 1)  # in a child that was forked
    assert not stranded.left
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    activate(second, partial(LoopAdapter, second), block=block_of(run_dir))
    assert stranded.left
    assert first.listener is None
    assert names_of(run_dir).count("attached") == 2, "in the same run directory"
    train(second, run_dir, "running")
    assert deactivate(second)


@pytest.mark.thorough
def test_clocks_that_the_driver_refuses_are_left_out(tmp_path: Path) -> None:
    """Two of those that a sweep measures first: it takes their neighbours. The plan uses neither."""
    with served(run_dir := tmp_path / "run", simulated={"refuses_mhz": [1200, 705, 1410]}) as loop:
        train(loop, run_dir, "running")
    told = [event["clock_mhz"] for event in events_of(run_dir, "clock_refused")]
    assert told == [1200, 705], "the GPU's own choice stands for the highest"
    profile, plans = read_profile(run_dir / "profile.json"), read_plans(run_dir / "plan.json")
    measured_mhz = {point.clock_mhz for points in profile.points.values() for point in points}
    assert len(measured_mhz) == 4
    assert max(measured_mhz) == 1410
    planned_mhz = {mhz for one in plans.options.values() for mhz in one.clock_mhz}
    assert len(planned_mhz) > 20
    assert not {1200, 705} & (measured_mhz | planned_mhz)
    assert [event["kind"] for event in events_of(run_dir, "conflict")] == ["clock_refused"]


def test_a_driver_that_refuses_all_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid_mhz = model_named("a100-sxm4-80gb").clocks_mhz
    with served(tmp_path / "run", simulated={"refuses_mhz": list(grid_mhz[1:])}) as loop:
        train(loop, tmp_path / "run", "disabled")
        assert loop.listener is None
        assert loop.iterations < 150
    assert "nvidia-smi" in capsys.readouterr().err


def test_a_profile_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(run_dir := tmp_path / "run") as loop:
        (run_dir / "profile.json" / "in the way").mkdir(parents=True)
        train(loop, run_dir, "disabled")
    assert f"{run_dir}: its profile" in capsys.readouterr().err


class Refusing(LoopAdapter):
    def install(self, listener: InstructionListener) -> None:
        raise EngineError("no hooks here")


def test_a_job_that_cannot_begin_gives_the_rest_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = DeviceUnavailableError("the driver does not answer")
    monkeypatch.setattr(SimulatedGpu, "close", MagicMock(side_effect=silent))
    config = parse(block_of(tmp_path / "run"), {})
    with pytest.raises(EngineError, match="no hooks here"):
        begin(Refusing(Loop()), config, engine=1, meeting=RendezvousResult())
    assert not (tmp_path / "run" / "lock.json").exists()


def test_attaching_again_and_again_piles_nothing_up(tmp_path: Path) -> None:
    handlers = []
    for _ in range(4):
        loop = Loop()
        activate(loop, partial(LoopAdapter, loop), block=block_of(tmp_path / "run"))
        loop.step()
        assert deactivate(loop)
        handlers.append(atexit._ncallbacks())
    assert len(set(handlers)) == 1
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert not [pid for pid in children if b"perseus_ds" in Path(f"/proc/{pid}/cmdline").read_bytes()]


# GPUs whose counters, clocks or computations are not what a sweep needs: one line, and training goes on.


class LockedByOthers(SimulatedGpu):
    """A GPU that gives no reason for a clock that it does not reach."""

    def achieved(self) -> Achieved:
        return replace(super().achieved(), event_reasons=EventReason.NONE)


def ended_by(run_dir: Path, change: Callable[[SimulatedGpu], None], *, after_windows: int = 0) -> str:
    """Run a job until it leaves since its GPU has changed; return why, with its clock given back."""
    with served(run_dir) as loop:
        if after_windows:
            train(loop, run_dir, "profiling", times=after_windows + 1)
        change(gpu())
        assert "profiled" not in train(loop, run_dir, "disabled")
        assert loop.listener is None
        before, locks = loop.iterations, gpu().truth.locks
        loop.step()
        assert (loop.iterations, gpu().truth.locks) == (before + 1, locks)
    return events_of(run_dir, "disabled")[0]["reason"]


@pytest.mark.parametrize(
    ("shows", "reason"),
    [
        (lambda counted_j, now_s: 4711.0, "stands still"),
        (lambda counted_j, now_s: 1e9 - counted_j, "steps back"),
        (lambda counted_j, now_s: math.nan, "stands still"),
        (lambda counted_j, now_s: counted_j + 1e9 * (now_s // 2.0), "steps back"),
    ],
    ids=["stands still", "counts down", "is no number", "leaps"],
)
def test_a_counter_that_is_none_ends_the_sweep_at_its_first_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shows: Callable[[float, float], float], reason: str
) -> None:
    counted = SimulatedGpu.energy_j

    def become(_: SimulatedGpu) -> None:
        monkeypatch.setattr(SimulatedGpu, "energy_j", lambda own: shows(counted(own), own.now_s()))

    told = ended_by(tmp_path / "run", become)
    assert "1410 MHz" in told
    assert "rank 0" in told
    assert reason in told
    assert "window_too_short" not in names_of(tmp_path / "run"), "a longer one would show no more"
    assert "not_measured" in names_of(tmp_path / "run")


def test_a_gpu_without_a_counter_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SimulatedGpu.capabilities
    monkeypatch.setattr(SimulatedGpu, "capabilities", lambda own: replace(whole(own), counter_period_s=None))
    assert "energy counter" in ended_by(tmp_path / "run", lambda _: None)
    with served(tmp_path / "seen", mode="observe") as loop:  # which is left alone where nothing can be seen
        for _ in range(40):
            loop.step()
    assert {"observed", "disabled"}.isdisjoint(names_of(tmp_path / "seen"))


def test_somebody_elses_lock_ends_the_sweep_with_both_clocks(tmp_path: Path) -> None:
    def lock(own: SimulatedGpu) -> None:
        own.__class__ = LockedByOthers
        own.throttle(1000)

    told = ended_by(tmp_path / "run", lock, after_windows=1)
    assert "somebody else" in told
    assert "1000 MHz" in told


def test_what_is_held_down_by_heat_goes_on_and_shows_nothing_of_leakage(tmp_path: Path) -> None:
    with served(run_dir := tmp_path / "run", mode="profile") as loop:
        train(loop, run_dir, "profiling", times=2)
        gpu().throttle(1000)
        train(loop, run_dir, "profiled")
    [told] = events_of(run_dir, "no_temperature")
    assert "highest clock" in told["line"]


@pytest.mark.parametrize("kinds", [KINDS[:1], ()], ids=["no backward", "nothing"])
def test_a_stage_that_does_not_run_ends_the_sweep(tmp_path: Path, kinds: tuple[Kind, ...]) -> None:
    with served(run_dir := tmp_path / "run") as loop:
        train(loop, run_dir, "profiling", times=2)
        loop.kinds = kinds
        train(loop, run_dir, "disabled")
        assert loop.listener is None
    [told] = events_of(run_dir, "disabled")
    assert f"ran {4 * len(kinds)} computations" in told["reason"]
    assert "8 computations" in told["reason"]
