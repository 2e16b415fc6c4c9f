"""Which backend `choose` takes and what it says of the others; conflicts on a GPU, rights to set clocks."""

import os
import subprocess
import sys
from types import ModuleType
from unittest.mock import Mock

import pynvml
import pytest

from perseus_ds.device import amd
from perseus_ds.device.gpu import (
    Achieved,
    Capabilities,
    ConflictKind,
    DeviceRequest,
    EventReason,
    Reaction,
    conflicts,
    missing_right,
)
from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.errors import ConfigError, DeviceUnavailableError
from perseus_ds.guard import containment
from perseus_ds.guard.open import Backend, NullGpu, ReadOnlyGpu, backends, choose


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NVML answer as on a machine without a GPU."""
    missing = pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    monkeypatch.setattr(pynvml, "nvmlInit", Mock(side_effect=missing))


@pytest.mark.usefixtures("no_driver")
def test_with_nothing_there_auto_takes_null_and_says_why_and_a_named_backend_is_an_error() -> None:
    choice = choose(DeviceRequest("automatic", uuid="GPU-of-torch"))
    assert choice.backend == "null"
    assert all(words in choice.reason for words in ("libnvidia-ml.so.1", "guardd: "))
    with pytest.raises(DeviceUnavailableError, match="no driver"):
        choose(DeviceRequest("nvml"))


def test_the_wrong_pynvml_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    with pytest.raises(DeviceUnavailableError, match=r"nvidia-ml-py.*pip uninstall"):
        choose(DeviceRequest("nvml"))


def test_simulated_is_taken_only_by_name_and_an_unknown_one_lists_those_known() -> None:
    choice = choose(DeviceRequest("simulated", local_rank=3))
    assert isinstance(choice.gpu, SimulatedGpu)
    assert (choice.gpu.identify().index, choice.reason) == (3, "as configured")
    with pytest.raises(ConfigError, match=r"'cuda'.*nvml,.*simulated"):
        choose(DeviceRequest("cuda"))


@pytest.mark.parametrize("backend", backends(), ids=lambda backend: backend.name)
def test_a_backend_opens_or_gives_a_reason(backend: Backend) -> None:
    opened = backend.try_open(DeviceRequest(lock=False))
    assert opened
    if not isinstance(opened, str):
        opened.close()


IN_A_CONTAINER = "the guard would die with its container"


@pytest.mark.parametrize(
    ("why_not", "allowed", "lock", "taken"),
    [
        (None, False, True, "guarded"),
        (IN_A_CONTAINER, True, True, "guarded"),
        (IN_A_CONTAINER, False, True, "read only"),
        (IN_A_CONTAINER, False, False, "as is"),
        (None, True, False, "as is"),
    ],
)
def test_a_clock_that_will_be_set_has_a_guard_that_is_safe_or_none(
    monkeypatch: pytest.MonkeyPatch, why_not: str | None, taken: str, *, allowed: bool, lock: bool
) -> None:
    guarded = Mock(side_effect=lambda gpu, *_: gpu)
    monkeypatch.setattr(sys.modules[choose.__module__], "open_guarded", guarded)
    monkeypatch.setattr(containment, "why_unguarded", lambda: why_not)
    gpu, able = NullGpu(), Capabilities((1410, 705), (), True, None, None, 0.0)
    gpu.capabilities = lambda: able
    monkeypatch.setattr(amd, "AmdGpu", lambda _: gpu)
    choice = choose(DeviceRequest("amdsmi", lock=lock, allow_unguarded_container=allowed))
    assert [call.args[1] for call in guarded.mock_calls] == ["amdsmi"] * (taken == "guarded")
    assert isinstance(choice.gpu, ReadOnlyGpu) == (taken == "read only")
    if taken == "read only":
        assert choice.gpu.capabilities().why_not.startswith(f"{IN_A_CONTAINER}: ")


# Conflicts with others on a GPU, and the right to set its clocks.

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
def test_reasons_precede_suspicion(seen_mhz: int, reasons: EventReason, kinds: list[ConflictKind]) -> None:
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
