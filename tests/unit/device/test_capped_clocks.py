"""A device is held below the requested clock by its clock, and never by its reasons."""

from perseus_ds.device.clock_agenda import DatedClock
from perseus_ds.device.clock_change import AskedClocks, is_capped
from perseus_ds.device.gpu import Achieved, EventReason

SETTLE_S = 0.1


def asked(*requests: tuple[float, int | None]) -> AskedClocks:
    history = AskedClocks()
    for due_s, clock_mhz in requests:
        history.put(DatedClock(due_s, clock_mhz))
    return history


def seen(*looks: tuple[float, int], reasons: EventReason = EventReason.NONE) -> list[tuple[float, Achieved]]:
    return [(time_s, Achieved(clock_mhz, reasons)) for time_s, clock_mhz in looks]


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
