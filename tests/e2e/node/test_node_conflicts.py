"""Others at work on a job's GPUs: said once, counted, and left to them where the rule says so."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import FakeNvml, beside, block, clocks_reset, lived, node_at, when
from jobs import events, lines, names, plain_losses
from ranks import Said, config

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

VICTIM = 2


def profiling(run_dir: Path) -> dict[str, object]:
    """A job that holds the highest clock for as long as the test takes."""
    return block(run_dir, mode="profile", profile={"min_window_s": 1e4, "max_clocks": 2, "settle_s": 0.0})


@pytest.fixture
def node(tmp_path: Path) -> FakeNvml:
    return node_at(tmp_path)


def afflicted(
    node: FakeNvml, run_dir: Path, blow: Callable[[], None], kind: str, *, leaves: bool
) -> list[Said]:
    """Train until what befalls the victim's GPU was seen; the losses are those of a job without us."""

    def held() -> bool:
        highest_mhz = node.state.gpu[0].boost_mhz or 1410  # calibration holds it too, for a moment
        return "profiling" in names(run_dir) and set(node.locked_mhz()) == {highest_mhz}

    def strike() -> None:
        time.sleep(1.0)  # the guard reads a clock back four times a second: let it see this one reached
        blow()

    def over(run_dir: Path) -> bool:
        return kind in [one for one, _, _ in conflicts(run_dir)] and not (leaves and node.locked_mhz()[0])

    with beside(when(held, strike)):
        said = lived(node, config(gradient_clipping=1.0, perseus=profiling(run_dir)), over, more=10)
    losses = [one.value.losses for one in said]
    assert losses == plain_losses(len(losses[0]))
    return said


def conflicts(run_dir: Path) -> list[tuple[object, ...]]:
    """All but requests that a busy host brings late to its driver: nobody else is at work there."""
    return [
        (event["kind"], event["rank"], event["rule"])
        for event in events(run_dir)
        if event["event"] == "conflict" and event["kind"] != "not_stored"
    ]


def counts(run_dir: Path, rank: int) -> dict[str, int]:
    content = json.loads((run_dir / "ranks" / f"rank_{rank:05d}.json").read_text())
    return {row["kind"]: row["count"] for row in content["conflicts"]}


def announced(said: list[Said], words: str) -> list[int]:
    """The ranks that said something, once for every time."""
    return [one.rank for one in said for line in lines(one) if words in line]


def test_a_foreign_clock_ends_our_control_and_not_the_training(node: FakeNvml, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    for state in node.state.gpu:
        state.boost_mhz = 1200  # an operator's ceiling: the highest clock that a job asks for

    def change() -> None:
        node.state.gpu[VICTIM].locked_mhz = 1410

    said = afflicted(node, run_dir, change, "foreign_clock", leaves=True)
    assert conflicts(run_dir) == [("foreign_clock", VICTIM, "give_up")]
    assert announced(said, "somebody else") == [0, VICTIM]
    assert counts(run_dir, VICTIM)["foreign_clock"] >= 3
    assert all(one.value.left_after is not None for one in said)
    assert node.locked_mhz() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("reasons", "kind", "words"),
    [(0x4, "power_cap", "power cap"), (0x40, "thermal", "too hot")],
    ids=["power cap", "heat"],
)
def test_a_throttled_gpu_is_said_and_goes_on(
    node: FakeNvml, tmp_path: Path, reasons: int, kind: str, words: str
) -> None:
    run_dir = tmp_path / "run"

    def throttle() -> None:
        node.state.gpu[VICTIM].reasons = reasons
        node.state.gpu[VICTIM].utilization, node.state.gpu[VICTIM].clamp_mhz = 90, 1000

    said = afflicted(node, run_dir, throttle, kind, leaves=False)
    assert conflicts(run_dir) == [(kind, VICTIM, "as_reached")]
    assert announced(said, words) == [0]
    assert counts(run_dir, VICTIM)[kind] >= 1
    assert [one.value.left_after for one in said] == [None] * 4
    assert node.locked_mhz() == [0, 0, 0, 0]


def test_a_changed_power_profile_is_said_and_goes_on(node: FakeNvml, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    node.state.gpu[VICTIM].power_profile = 3

    def change() -> None:
        node.state.gpu[VICTIM].power_profile = 5

    said = afflicted(node, run_dir, change, "setting_changed", leaves=False)
    assert conflicts(run_dir) == [("setting_changed", VICTIM, "know")]
    assert announced(said, "power profile") == [0]
    assert counts(run_dir, VICTIM)["setting_changed"] == 1
    assert [one.value.left_after for one in said] == [None] * 4


def test_a_lost_gpu_takes_all_out_and_is_repaired_when_it_is_back(node: FakeNvml, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"

    def lose() -> None:
        node.state.gpu[VICTIM].any_error = 15

    said = afflicted(node, run_dir, lose, "gpu_lost", leaves=True)
    assert ("gpu_lost", VICTIM, "give_up") in conflicts(run_dir)
    assert announced(said, "conflict on rank 2: the GPU has fallen off the bus") == [0]
    assert VICTIM in announced(said, "off, training")
    assert all(one.value.left_after is not None for one in said)
    assert node.locked_mhz() == [0, 0, 1410, 0]
    node.state.gpu[VICTIM].any_error = 0
    assert clocks_reset(node).returncode == 0  # its guard may have put it back before
    assert node.locked_mhz() == [0, 0, 0, 0]
