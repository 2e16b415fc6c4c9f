"""Who works against us, from one look."""

import pytest

from perseus_ds.device.gpu import Achieved, ConflictKind, EventReason, Reaction, conflicts


@pytest.mark.parametrize(
    ("seen_mhz", "reasons", "kinds"),
    [
        (900, EventReason.NONE, []),
        (885, EventReason.NONE, []),
        (1200, EventReason.NONE, [ConflictKind.FOREIGN_CLOCK]),
        (850, EventReason.SW_POWER_CAP, [ConflictKind.POWER_CAP]),
        (
            850,
            EventReason.SW_POWER_CAP | EventReason.HW_THERMAL,
            [ConflictKind.POWER_CAP, ConflictKind.THERMAL],
        ),
        (850, EventReason.HW_POWER_BRAKE, [ConflictKind.HW_SLOWDOWN]),
        (210, EventReason.GPU_IDLE, []),
        (900, EventReason.SW_POWER_CAP, []),
        (900, EventReason.HW_SLOWDOWN, []),
        (1200, EventReason.SW_POWER_CAP, [ConflictKind.FOREIGN_CLOCK]),
        (510, EventReason.NONE, [ConflictKind.FOREIGN_CLOCK]),
    ],
)
def test_the_devices_own_reasons_come_before_suspicion(
    seen_mhz: int, reasons: EventReason, kinds: list[ConflictKind]
) -> None:
    assert [found.kind for found in conflicts(900, Achieved(seen_mhz, reasons), held_mhz=900)] == kinds


def test_a_clock_above_what_the_gpu_held_in_the_sweep_accuses_nobody() -> None:
    """Under full load many fall below their lock and give no reason, though it was reached at first."""
    [found] = conflicts(1965, Achieved(1580, EventReason.NONE), held_mhz=1500)
    assert found.kind is ConflictKind.NOT_HELD
    assert found.kind.action is Reaction.KNOW


@pytest.mark.parametrize(
    ("reasons", "kinds"),
    [(EventReason.NONE, []), (EventReason.SW_THERMAL, [ConflictKind.THERMAL])],
    ids=["on its way", "too hot"],
)
def test_a_clock_on_its_way_is_judged_by_reasons_alone(
    reasons: EventReason, kinds: list[ConflictKind]
) -> None:
    seen = conflicts(900, Achieved(1410, reasons), settled=False)
    assert [found.kind for found in seen] == kinds


def test_samples_are_said_to_be_left_out_where_they_are() -> None:
    """While no clock is ours to set; what a cap, heat or the hardware holds down counts as it was reached."""
    held_down = {ConflictKind.POWER_CAP, ConflictKind.THERMAL, ConflictKind.HW_SLOWDOWN}
    uncontrolled = {ConflictKind.CONTROL_LOST, ConflictKind.NOT_STORED}
    assert {kind for kind in ConflictKind if kind.action is Reaction.GO_ON} == uncontrolled
    assert {kind for kind in ConflictKind if kind.action is Reaction.AS_REACHED} == held_down


def test_an_idle_gpu_that_does_not_say_so_accuses_nobody() -> None:
    assert conflicts(900, Achieved(345, EventReason.NONE), held_mhz=1410, idle=True) == ()
