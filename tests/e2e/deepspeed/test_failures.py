"""Failures inside the training process: clocks back, the job trains on, nobody hangs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jobs import STAGES, UNEVEN, Lifecycle, block, copy_of, events, happened, lines, plain_losses, train_until
from ranks import batches, build, config, losses, run_ranks

from perseus_ds.device.simulated.gpu import SimulatedGpu, opened_gpus
from perseus_ds.errors import DeviceLostError
from perseus_ds.plan import read_plans
from perseus_ds.profile import read_profile

pytestmark = pytest.mark.e2e

STEPS = 16
FAILING_RANK = 2
FAILS_AT = 5


def lost(gpu: SimulatedGpu, *args: object) -> None:
    raise DeviceLostError("the GPU has fallen off the bus")


def clock_at_the_end_mhz() -> float:
    """Let the switch happen that was asked for: it takes its latency, and the host may be busy."""
    gpu = opened_gpus()[-1]
    for _ in range(500):
        if gpu.true_now().clock_mhz != gpu.model.max_clock_mhz:
            gpu.sleep(0.01)
    return gpu.true_now().clock_mhz


def lose_a_device(rank: int, content: Mapping[str, Any], fails: str) -> tuple[list[str], int | None, float]:
    """Train on while one GPU is lost; return losses, after which step we left, and the clock at the end."""
    engine, data = build(content, stages=STAGES, inner=UNEVEN), batches()
    seen, left_after = list[str](), None
    for step in range(STEPS):
        if step == FAILS_AT and rank == FAILING_RANK:
            setattr(SimulatedGpu, fails, lost)
        seen.append(float(engine.train_batch(data)).hex())
        if left_after is None and "_exec_schedule" not in vars(engine):
            left_after = step
    return seen, left_after, clock_at_the_end_mhz()


@pytest.mark.parametrize(("mode", "fails"), [("run", "lock_clock"), ("profile", "energy_j")])
def test_a_lost_gpu_takes_all_ranks_out(lifecycle: Lifecycle, tmp_path: Path, mode: str, fails: str) -> None:
    run_dir = copy_of(lifecycle.run_dir, tmp_path / "lost")
    content = config(gradient_clipping=1.0, perseus=block(run_dir, mode=mode))
    said = run_ranks(4, lose_a_device, content, fails)
    losses, left_after, clocks_mhz = map(list, zip(*(one.value for one in said), strict=True))
    assert losses == plain_losses(STEPS)
    assert clocks_mhz == [1410.0] * STAGES
    del left_after[FAILING_RANK]
    assert None not in left_after
    assert len(set(left_after)) == 1
    off = [line for one in said for line in lines(one) if "off, training" in line]
    assert ["fallen" in line for line in off] == [True]


@pytest.mark.slow
def test_what_one_driver_refuses_no_rank_measures_or_plans(tmp_path: Path) -> None:
    """The sweep of three clocks would measure 1095 MHz, and its neighbour 1110 next."""
    simulated = {"ranks": {str(FAILING_RANK): {"refuses_mhz": [1095, 1110]}}}
    content = config(gradient_clipping=1.0, perseus=block(tmp_path, simulated=simulated))
    said = run_ranks(4, train_until, content, STAGES, happened("running"))
    refused = [(event["clock_mhz"], event["ranks"]) for event in events(tmp_path, "clock_refused")]
    assert refused == [(1095, [2]), (1110, [2])]
    profile, plans = read_profile(tmp_path / "profile.json"), read_plans(tmp_path / "plan.json")
    assert profile.clocks_mhz == (1410, 1080, 705)
    assert not {1095, 1110} & {mhz for one in plans.options.values() for mhz in one.clock_mhz}
    losses = said[0].value.losses
    assert [one.value.losses for one in said] == plain_losses(len(losses))


class UserBugError(Exception):
    """Something of the user's own."""


def host_breaks(rank: int, content: Mapping[str, Any]) -> tuple[bool, float]:
    """An exception in the model itself, in the middle of an iteration of the sweep; then the clock."""
    engine, bug = build(content, stages=1, inner=(8,)), UserBugError("mine")
    losses(engine, 4)

    def broken(*args: object) -> None:
        raise bug

    handle = engine.module.register_forward_pre_hook(broken)
    with pytest.raises(UserBugError) as raised:
        engine.train_batch(batches())
    handle.remove()
    return raised.value is bug, clock_at_the_end_mhz()


def test_the_hosts_own_exception_passes_through_and_clocks_are_restored(tmp_path: Path) -> None:
    profile = {"warmup_iterations": 1, "min_window_s": 3600.0, "max_clocks": 2}
    said = run_ranks(1, host_breaks, config(perseus=block(tmp_path, profile=profile, mode="profile")))
    assert said[0].value == (True, 1410.0)
