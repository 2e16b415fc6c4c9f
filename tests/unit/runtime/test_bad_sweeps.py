"""GPUs whose counters, clocks or computations are not what a sweep needs: one line, and training goes on."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from lone_job import KINDS, events_of, gpu, names_of, served, train

from perseus_ds.device.gpu import Achieved, EventReason
from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.schedule import Kind

pytestmark = pytest.mark.usefixtures("process_group")


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
    return str(events_of(run_dir, "disabled")[0]["reason"])


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
    assert "highest clock" in str(told["line"])


@pytest.mark.parametrize("kinds", [KINDS[:1], ()], ids=["no backward", "nothing"])
def test_a_stage_that_does_not_run_ends_the_sweep(tmp_path: Path, kinds: tuple[Kind, ...]) -> None:
    with served(run_dir := tmp_path / "run") as loop:
        train(loop, run_dir, "profiling", times=2)
        loop.kinds = kinds
        train(loop, run_dir, "disabled")
        assert loop.listener is None
    [told] = events_of(run_dir, "disabled")
    assert f"ran {4 * len(kinds)} computations" in str(told["reason"])
    assert "8 computations" in str(told["reason"])
