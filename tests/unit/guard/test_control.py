"""What a guard does by itself: a lease that lapses, looks at the clock, and when control is given up."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from lone_job import DeskGpu

from perseus_ds.device.gpu import ConflictKind, EventReason, OperatorSettings
from perseus_ds.errors import DeviceError, DeviceLostError, DeviceUnavailableError
from perseus_ds.guard.claim import GpuClaim
from perseus_ds.guard.writer import Control

Setting = dict[str, Any]


@dataclass
class Desk:
    """A GPU under control, in a time that the test moves on."""

    lease_s: float = 30.0
    now_s: float = 100.0
    said: list[tuple[ConflictKind, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gpu = DeskGpu()
        self.control = Control(
            GpuClaim(self.gpu, "job", patience_s=0.0),
            lease_s=self.lease_s,
            warn=lambda kind, line: self.said.append((kind, line)),
            now_s=lambda: self.now_s,
        )
        self.control.begin()
        self.number = 0

    def ask(self, clock_mhz: int | None) -> None:
        self.number += 1
        self.control.renew()
        self.control.request(self.number, clock_mhz)
        self.control.step()

    def look(self) -> None:
        """Go on to the next look, speaking all the time."""
        self.now_s = max(self.control.due_s(), self.now_s + 0.25)
        self.control.renew()
        self.control.step()

    @property
    def kinds(self) -> list[ConflictKind]:
        return [kind for kind, _ in self.said]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEUS_GUARD_DIR", str(tmp_path / "guard"))


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.gpu.moved_mhz = desk.gpu.refuses = None
    desk.control.release()


@pytest.mark.parametrize(("asked_s", "lapses_s"), [(30.0, 30.0), (-1.0, 0.1), (0.0, 0.1), (1e9, 600.0)])
def test_a_lease_lapses_when_nobody_spoke_and_is_no_shorter_and_no_longer_than_allowed(
    asked_s: float, lapses_s: float
) -> None:
    desk = Desk(lease_s=asked_s)
    desk.ask(900)
    desk.now_s += lapses_s * (1 - 1e-9)
    desk.control.step()
    assert desk.gpu.calls == [900]
    desk.now_s += lapses_s * 1e-6
    desk.control.step()
    assert desk.gpu.calls == [900, None]
    desk.control.step()
    assert desk.gpu.calls == [900, None], "once"
    desk.ask(705)
    assert desk.gpu.calls == [900, None, 705], "who speaks again is heard again"
    desk.control.release()


def test_who_was_silent_gets_its_clock_back_by_speaking(desk: Desk) -> None:
    """A trainer that was stopped goes on where it was: it does not ask again for the clock that it has."""
    desk.ask(900)
    desk.now_s += 31.0
    desk.control.step()
    assert desk.gpu.calls == [900, None]
    desk.control.renew()
    desk.control.step()
    assert desk.gpu.calls == [900, None, 900]
    desk.now_s += 1.0
    desk.control.renew()
    desk.control.step()
    assert desk.gpu.calls == [900, None, 900], "once"


def test_who_had_given_its_clock_back_is_left_without(desk: Desk) -> None:
    desk.ask(900)
    desk.ask(None)
    desk.now_s += 31.0
    desk.control.step()
    desk.control.renew()
    desk.control.step()
    assert desk.gpu.calls == [900, None]


def test_who_speaks_keeps_the_lease(desk: Desk) -> None:
    desk.ask(900)
    for _ in range(5):
        desk.now_s += 29.0
        desk.control.renew()
        desk.control.step()
    assert desk.gpu.calls == [900]


def test_the_next_thing_to_do_is_a_look_or_the_lapse(desk: Desk) -> None:
    assert desk.control.due_s() == desk.now_s + 30.0
    desk.ask(900)
    assert desk.control.due_s() < desk.now_s + 0.3
    desk.now_s += 31.0
    desk.control.step()
    while desk.control.due_s() is not None:
        desk.now_s = desk.control.due_s()
        desk.control.step()
    assert desk.gpu.calls == [900, None]


def test_three_foreign_clocks_in_a_row_and_control_is_given_up(desk: Desk) -> None:
    desk.ask(900)
    desk.look()
    desk.gpu.moved_mhz = 1410
    desk.look()
    desk.look()
    with pytest.raises(DeviceUnavailableError, match=r"1410 MHz"):
        desk.look()
    assert desk.gpu.calls == [900, None]
    assert desk.kinds == [ConflictKind.FOREIGN_CLOCK] * 3


def test_a_good_look_in_between_forgives(desk: Desk) -> None:
    desk.ask(900)
    desk.look()
    for _ in range(4):
        desk.gpu.moved_mhz = 1410
        desk.look()
        desk.look()
        desk.gpu.moved_mhz = None
        desk.look()
    assert desk.gpu.calls == [900]


def test_after_control_was_given_up_it_takes_three_again(desk: Desk) -> None:
    desk.ask(900)
    desk.look()
    desk.gpu.moved_mhz = 1410
    desk.look()
    desk.look()
    with pytest.raises(DeviceUnavailableError):
        desk.look()
    desk.gpu.moved_mhz = None
    desk.ask(705)
    desk.look()
    desk.gpu.moved_mhz = 1410
    desk.look()
    desk.look()
    assert desk.gpu.calls == [900, None, 705]


def test_a_clock_that_the_device_holds_down_is_said_and_kept(desk: Desk) -> None:
    desk.ask(1200)
    desk.look()
    desk.gpu.moved_mhz, desk.gpu.reasons = 900, EventReason.SW_POWER_CAP
    for _ in range(5):
        desk.look()
    assert desk.gpu.calls == [1200]
    assert set(desk.kinds) == {ConflictKind.POWER_CAP}


@pytest.mark.parametrize(
    ("before", "now", "kind", "words"),
    [
        ({"profiles": (2,)}, {"profiles": (3, 5)}, ConflictKind.POWER_PROFILE, "3, 5"),
        ({"limit_w": 400.0}, {"limit_w": 299.9}, ConflictKind.POWER_LIMIT, "300 W"),
        (
            {"ceiling_mhz": 0},
            {"ceiling_mhz": 1200},
            ConflictKind.APPLICATION_CLOCK,
            "1200 MHz",
        ),
        (
            {"smoothing": "off"},
            {"smoothing": "profile 1, floor 60 %"},
            ConflictKind.POWER_SMOOTHING,
            "profile 1",
        ),
    ],
)
def test_a_setting_of_power_that_changes_is_said_once(
    desk: Desk, before: Setting, now: Setting, kind: ConflictKind, words: str
) -> None:
    desk.gpu.power = OperatorSettings(**before)
    desk.control.begin()
    desk.ask(900)
    for power in (before, now, now, {}, now):  # what a driver does not state just now has not changed
        desk.gpu.power = OperatorSettings(**power)
        for _ in range(5):
            desk.look()
    [(said, line)] = desk.said
    assert said is kind
    assert words in line


def test_a_gpu_that_falls_off_the_bus_is_said(desk: Desk) -> None:
    desk.ask(900)
    desk.gpu.achieved = lambda: (_ for _ in ()).throw(DeviceLostError("gone"))
    with pytest.raises(DeviceLostError):
        desk.look()
    assert desk.said == [(ConflictKind.GPU_LOST, "gone")]
    del desk.gpu.achieved


def test_for_a_clock_that_the_driver_refuses_the_next_higher_one_stands(desk: Desk) -> None:
    """What was asked for before must not stay: a lower clock would slow down what wanted the higher one."""
    desk.gpu.refuses_mhz = {900, 1410}
    tries: list[int | None] = []
    desk.gpu.before = tries.append
    for clock_mhz in (705, 900, 705, 900, 1410, 705):
        desk.ask(clock_mhz)
        while desk.control.pending:
            desk.look()
    assert desk.gpu.calls == [705, 1200, 705, 1200, None, 705]
    assert (tries.count(900), tries.count(1410)) == (1, 1), "who was refused once is not asked again"
    text = ConflictKind.CLOCK_REFUSED.text
    assert [line for _, line in desk.said] == [f"{text}: lock {mhz} MHz: refused" for mhz in (900, 1410)]
    assert desk.control.refused_mhz == 1410
    assert desk.control.report().number == desk.number


def test_what_stands_in_the_way_from_the_start_is_said(desk: Desk) -> None:
    desk.control.report_conditions()
    assert desk.said == []
    desk.gpu.without_persistence()
    desk.control.report_conditions()
    assert desk.said == [(ConflictKind.PERSISTENCE_OFF, ConflictKind.PERSISTENCE_OFF.text)]


def test_a_gpu_that_cannot_be_let_go_is_closed_all_the_same() -> None:
    desk = Desk()
    desk.ask(900)
    desk.gpu.refuses = DeviceError("busy")
    with pytest.raises(DeviceError, match="busy"):
        desk.control.release()
    assert desk.gpu.closed == 1
