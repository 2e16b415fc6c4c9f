"""What not every driver answers, asked of a driver that answers by hand."""

from types import SimpleNamespace

import pytest

from perseus_ds.device.nvml import why_no_memory_clock


def driver(**answers: object) -> SimpleNamespace:
    """A binding whose functions return what is given, whatever they are asked."""
    said = {name: (lambda *_, value=value, **__: value) for name, value in answers.items()}
    return SimpleNamespace(**said, nvmlMemory_v2=2)


@pytest.mark.parametrize(
    ("architecture", "clocks_mhz", "why_not"),
    [
        (7, (9501, 810), None),
        (8, (9501, 810), None),
        (6, (9501, 810), "Ampere"),
        (9, (2619, 1593), "Hopper"),
        (10, (2619, 1593), None),
        (7, (1593,), "one"),
        (7, (), "no memory"),
    ],
)
def test_which_memory_clocks_can_be_locked(
    architecture: int, clocks_mhz: tuple[int, ...], why_not: str | None
) -> None:
    nvml = driver(nvmlDeviceGetArchitecture=architecture)
    told = why_no_memory_clock(nvml, None, clocks_mhz)
    assert (told is None) == (why_not is None)
    assert why_not is None or why_not in str(told)
