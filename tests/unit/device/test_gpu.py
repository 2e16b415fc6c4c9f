"""Conflicts with others on a GPU, and the right to set its clocks."""

import os
import subprocess
import sys

import pytest

from perseus_ds.device.gpu import Achieved, ConflictKind, EventReason, Reaction, conflicts, missing_right

NONE, CAPPED = EventReason.NONE, EventReason.SW_POWER_CAP
FOREIGN, BOTH = [ConflictKind.FOREIGN_CLOCK], [ConflictKind.POWER_CAP, ConflictKind.THERMAL]


@pytest.mark.parametrize(
    ("seen_mhz", "reasons", "kinds"),
    [
        *((mhz, NONE, []) for mhz in (900, 885)),
        *((mhz, NONE, FOREIGN) for mhz in (1200, 510)),
        (850, CAPPED, [ConflictKind.POWER_CAP]),
        (850, CAPPED | EventReason.HW_THERMAL, BOTH),
        (850, EventReason.HW_POWER_BRAKE, [ConflictKind.HW_SLOWDOWN]),
        (210, EventReason.GPU_IDLE, []),
        *((900, reasons, []) for reasons in (CAPPED, EventReason.HW_SLOWDOWN)),
        (1200, CAPPED, FOREIGN),
    ],
)
def test_the_devices_own_reasons_come_before_suspicion(
    seen_mhz: int, reasons: EventReason, kinds: list[ConflictKind]
) -> None:
    assert [found.kind for found in conflicts(900, Achieved(seen_mhz, reasons), held_mhz=900)] == kinds


def test_nobody_is_accused_of_a_clock_on_its_way_of_idling_or_of_what_was_not_held_in_the_sweep() -> None:
    """Under full load many fall below their lock and give no reason, though it was reached at first."""
    assert conflicts(900, Achieved(1410, NONE), settled=False) == ()
    [hot] = conflicts(900, Achieved(1410, EventReason.SW_THERMAL), settled=False)
    assert hot.kind is ConflictKind.THERMAL
    assert conflicts(900, Achieved(345, NONE), held_mhz=1410, idle=True) == ()
    [found] = conflicts(1965, Achieved(1580, NONE), held_mhz=1500)
    assert found.kind is ConflictKind.NOT_HELD
    assert found.kind.action is Reaction.KNOW


def test_samples_are_said_to_be_left_out_where_they_are() -> None:
    """While no clock is ours to set; what a cap, heat or the hardware holds down counts as it was reached."""
    held_down = {ConflictKind.POWER_CAP, ConflictKind.THERMAL, ConflictKind.HW_SLOWDOWN}
    uncontrolled = {ConflictKind.CONTROL_LOST, ConflictKind.NOT_STORED}
    assert {kind for kind in ConflictKind if kind.action is Reaction.GO_ON} == uncontrolled
    assert {kind for kind in ConflictKind if kind.action is Reaction.AS_REACHED} == held_down


# Who may set clocks: whoever has CAP_SYS_ADMIN on the node, whatever its user is called.

_PR_CAPBSET_DROP, _CAP_SYS_ADMIN = 24, 21  # linux/prctl.h, linux/capability.h
_WITHOUT = (
    f"import ctypes, os, sys; ctypes.CDLL(None).prctl({_PR_CAPBSET_DROP}, {_CAP_SYS_ADMIN}, 0, 0, 0);"
    "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
)
_ASK = "from perseus_ds.device.gpu import missing_right; print(missing_right())"


def _told(*words: str) -> str:
    command = [sys.executable, "-c", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to drop")
def test_root_without_the_capability_may_not() -> None:
    """Like in most containers, the driver asks for the capability and not for the user."""
    assert "CAP_SYS_ADMIN" in _told(_WITHOUT, _ASK)


@pytest.mark.skipif(missing_right() is not None, reason="this process lacks the right itself")
def test_with_the_capability_one_may() -> None:
    assert _told(_ASK) == "None\n"
