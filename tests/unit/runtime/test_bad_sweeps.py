"""GPUs whose counters, clocks or computations are not what a sweep needs: one line, and training goes on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from lone_job import KINDS, Loop, begun, block_of, events_of, gpu, names_of, train

from perseus_ds.device.gpu import Achieved, Capabilities, EventReason
from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.schedule import Kind

pytestmark = pytest.mark.usefixtures("process_group")


class StandsStill(SimulatedGpu):
    def energy_j(self) -> float:
        return 4711.0


class CountsDown(SimulatedGpu):
    def energy_j(self) -> float:
        return 1e9 - super().energy_j()


class CountsNothing(SimulatedGpu):
    def energy_j(self) -> float:
        return math.nan


class Leaps(SimulatedGpu):
    def energy_j(self) -> float:
        return super().energy_j() + 1e9 * (self.now_s() // 2.0)


class LockedByOthers(SimulatedGpu):
    """A GPU that gives no reason for a clock that it does not reach."""

    def achieved(self) -> Achieved:
        return replace(super().achieved(), event_reasons=EventReason.NONE)


def ended_by(run_dir: Path, change: Callable[[SimulatedGpu], None], *, after_windows: int = 0) -> str:
    """Run a job until it leaves since its GPU has changed; return why, with its clock given back."""
    loop = Loop()
    session = begun(loop, block_of(run_dir))
    if after_windows:
        train(loop, run_dir, lambda names: names.count("profiling") > after_windows)
    change(gpu())
    names = train(loop, run_dir, lambda names: "disabled" in names)
    assert loop.listener is None
    assert "profiled" not in names
    before, locks = loop.iterations, gpu().truth.locks
    loop.step()
    assert (loop.iterations, gpu().truth.locks) == (before + 1, locks)
    session.end(well=True)
    return str(next(event["reason"] for event in events_of(run_dir) if event["event"] == "disabled"))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (StandsStill, "stands still"),
        (CountsDown, "steps back"),
        (CountsNothing, "stands still"),
        (Leaps, "steps back"),
    ],
)
def test_a_counter_that_is_none_ends_the_sweep_at_its_first_window(
    tmp_path: Path, kind: type[SimulatedGpu], reason: str
) -> None:
    def become(own: SimulatedGpu) -> None:
        own.__class__ = kind

    told = ended_by(tmp_path / "run", become)
    assert "1410 MHz" in told
    assert "rank 0" in told
    assert reason in told
    assert "window_too_short" not in names_of(tmp_path / "run"), "a longer one would show no more"
    assert "not_measured" in names_of(tmp_path / "run")


def test_a_gpu_without_a_counter_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SimulatedGpu.capabilities

    def without_counter(own: SimulatedGpu) -> Capabilities:
        return replace(whole(own), counter_period_s=None)

    monkeypatch.setattr(SimulatedGpu, "capabilities", without_counter)
    told = ended_by(tmp_path / "run", lambda _: None)
    assert "energy counter" in told


def test_somebody_elses_lock_ends_the_sweep_with_both_clocks(tmp_path: Path) -> None:
    def lock(own: SimulatedGpu) -> None:
        own.__class__ = LockedByOthers
        own.throttle(1000)

    told = ended_by(tmp_path / "run", lock, after_windows=1)
    assert "somebody else" in told
    assert "1000 MHz" in told


def test_what_is_held_down_by_heat_goes_on_and_shows_nothing_of_leakage(tmp_path: Path) -> None:
    loop, run_dir = Loop(), tmp_path / "run"
    session = begun(loop, block_of(run_dir, mode="profile"))
    train(loop, run_dir, lambda names: names.count("profiling") > 1)
    gpu().throttle(1000)
    train(loop, run_dir, lambda names: "profiled" in names)
    [told] = [str(event["line"]) for event in events_of(run_dir) if event["event"] == "no_temperature"]
    assert "highest clock" in told
    session.end(well=True)


@pytest.mark.parametrize("kinds", [KINDS[:1], ()], ids=["no backward", "nothing"])
def test_a_stage_that_does_not_run_in_the_sweep_ends_it_with_what_was_seen(
    tmp_path: Path, kinds: tuple[Kind, ...]
) -> None:
    loop, run_dir = Loop(), tmp_path / "run"
    session = begun(loop, block_of(run_dir))
    train(loop, run_dir, lambda names: names.count("profiling") > 1)
    loop.kinds = kinds
    train(loop, run_dir, lambda names: "disabled" in names)
    [told] = [str(event["reason"]) for event in events_of(run_dir) if event["event"] == "disabled"]
    assert f"ran {4 * len(kinds)} computations" in told
    assert "8 computations" in told
    assert loop.listener is None
    session.end(well=True)
