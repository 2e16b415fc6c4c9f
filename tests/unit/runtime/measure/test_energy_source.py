"""The energy that is booked is this GPU's: whatever its counter counts, wherever it stops or begins again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from personality_gpu import Character, PersonalityGpu, Power
from virtual_host import VirtualHost, closing

from perseus_ds.runtime.energy_monitor import EnergyWatch


@pytest.fixture
def host() -> Iterator[VirtualHost]:
    with closing(VirtualHost()) as host:
        yield host


def busy(now_s: float) -> float:
    """A pipeline's GPU: 600 W at work, 120 W while it waits, some seven times a second."""
    return 600.0 if math.sin(43.0 * now_s) > -0.3 else 120.0


def watched(host: VirtualHost, character: Character, power: Power = lambda _: 400.0) -> EnergyWatch:
    watch = EnergyWatch(PersonalityGpu(host, character, power), threads=host)
    watch.start()
    return watch


def watts(host: VirtualHost, watch: EnergyWatch, *, for_s: float = 10.0) -> float:
    begun_s = host.now_s() + 1.0
    host.sleep(for_s + 2.0)
    return watch.trace(begun_s).energy_between(begun_s, begun_s + for_s) / for_s


@pytest.mark.parametrize("power", [lambda _: 90.0, lambda _: 650.0, busy])
@pytest.mark.parametrize("period_s", [0.02, 0.1])
def test_a_counter_of_this_gpu_is_believed(host: VirtualHost, power: Power, period_s: float) -> None:
    watch = watched(host, Character(period_s=period_s), power)
    host.sleep(20.0)
    assert watch.trouble() == ""
    mean_w = sum(power(n * 1e-3) for n in range(10_000)) / 10_000
    assert watts(host, watch) == pytest.approx(mean_w, rel=0.08)


@pytest.mark.parametrize("power", [lambda _: 90.0, lambda _: 650.0, busy])
def test_a_modules_counter_is_found_out_and_replaced(host: VirtualHost, power: Power) -> None:
    watch = watched(host, Character(module_w=250.0), power)
    host.sleep(6.0)
    line = watch.trouble()
    assert "integrated" in line
    assert watch.trouble() == "", "said once"
    mean_w = sum(power(n * 1e-3) for n in range(10_000)) / 10_000
    assert watts(host, watch) == pytest.approx(mean_w, rel=0.03)


@pytest.mark.parametrize("counts", [0.85, 1.15])
def test_a_counter_that_differs_by_more_than_a_tenth_is_kept_and_reported(
    host: VirtualHost, counts: float
) -> None:
    watch = watched(host, Character(counts=counts))
    host.sleep(5.0)
    assert watch.trouble() == "", "a second is too short to accuse it"
    host.sleep(15.0)
    line = watch.trouble()
    assert f"{counts:.2f} times" in line
    assert watch.trouble() == "", "reported once"
    assert watts(host, watch) == pytest.approx(400.0 * counts, rel=0.01)


@pytest.mark.parametrize("counts", [0.95, 1.05])
def test_one_that_differs_by_less_is_not_worth_a_line(host: VirtualHost, counts: float) -> None:
    watch = watched(host, Character(counts=counts), busy)
    host.sleep(20.0)
    assert watch.trouble() == ""


def test_a_counter_that_stands_still_is_replaced(host: VirtualHost) -> None:
    watch = watched(host, Character(stands_still=True))
    host.sleep(6.0)
    assert "stands still" in watch.trouble()
    assert watts(host, watch) == pytest.approx(400.0, rel=0.01)


NO_POWER = "no power"


@pytest.mark.parametrize(
    ("character", "why"),
    [
        ({"stops_s": 60.0}, "stands still"),
        ({"shows": lambda counted_j: 1e6 - counted_j}, "steps back"),
        ({"wraps_j": 4000.0}, "steps back"),
        ({"shows": lambda counted_j: counted_j + 1e9 * (counted_j // 4000.0)}, "steps back"),
        ({"shows": lambda _: math.nan}, "stands still"),
    ],
    ids=["stops", "counts down", "wraps often", "leaps", "is no number"],
)
@pytest.mark.parametrize("tells_power", [True, False])
def test_a_counter_that_is_none_any_more_is_replaced_or_of_no_use(
    host: VirtualHost, character: dict[str, Any], why: str, *, tells_power: bool
) -> None:
    watch = watched(host, Character(**character, tells_power=tells_power))
    lines = []
    for _ in range(80):
        host.sleep(1.0)
        lines.append(watch.trouble())
    [last] = [line for line in lines if why in line and line]
    assert ("integrated" if tells_power else NO_POWER) in last
    assert (why in watch.useless) is not tells_power
    if tells_power:
        assert watts(host, watch) == pytest.approx(400.0, rel=0.01)


def test_a_counter_that_wraps_now_and_then_is_kept_and_reported_once(host: VirtualHost) -> None:
    watch = watched(host, Character(wraps_j=40_000.0))
    lines = [watch.trouble() for _ in range(250) if host.sleep(1.0) is None]
    [line] = filter(None, lines)
    assert "back" in line
    assert not watch.useless


def test_a_driver_that_hung_for_a_minute_has_no_counter_that_stands_still(host: VirtualHost) -> None:
    watch = watched(host, Character(hangs=(30.0, 90.0)))
    host.sleep(120.0)
    assert watch.trouble() == ""


@pytest.mark.parametrize("without", [{"tells_power": False}, {"power_fails": True}])
def test_without_a_reading_of_power_the_counter_is_what_there_is(
    host: VirtualHost, without: dict[str, bool]
) -> None:
    watch = watched(host, Character(module_w=250.0, **without))
    host.sleep(6.0)
    assert watch.trouble() == ""
    assert watts(host, watch) == pytest.approx(650.0, rel=0.01)


def test_a_counter_that_wraps_never_gives_energy_back(host: VirtualHost) -> None:
    watch = watched(host, Character(wraps_j=12_000.0))
    seen = []
    for _ in range(31):
        host.sleep(1.0)
        trace = watch.trace(0.0)
        seen += [later - earlier for earlier, later in zip(trace.energy_j, trace.energy_j[1:], strict=False)]
    assert min(seen) > 0.0
    assert watts(host, watch, for_s=3.0) == pytest.approx(400.0, rel=0.02)


def test_one_that_moves_every_millisecond_is_looked_at_every_twenty(host: VirtualHost) -> None:
    gpu = PersonalityGpu(host, Character(period_s=0.001))
    watch = EnergyWatch(gpu, threads=host)
    watch.start()
    host.sleep(20.0)  # its power is read beside it at first
    before = gpu.reads
    host.sleep(10.0)
    assert gpu.reads - before <= 10.0 / 0.02 + 1
    assert watts(host, watch) == pytest.approx(400.0, rel=0.01)


def test_closing_waits_for_no_driver_that_hangs(host: VirtualHost) -> None:
    watch = watched(host, Character(hangs=(2.0, 722.0)))
    host.sleep(3.0)
    begun_s = host.now_s()
    watch.close()
    assert host.now_s() - begun_s < 5.0


@pytest.mark.thorough
def test_memory_is_bounded_where_nothing_is_ever_settled(host: VirtualHost) -> None:
    watch = watched(host, Character())
    host.sleep(3600.0)
    assert len(watch.trace(0.0)) <= 100_000
