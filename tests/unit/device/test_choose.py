"""Which backend `choose` takes, and what it says about the others."""

import sys
from types import ModuleType

import pytest

from perseus_ds.device import amd
from perseus_ds.device.gpu import Capabilities, DeviceRequest, Gpu
from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.errors import ConfigError, DeviceUnavailableError
from perseus_ds.guard import containment
from perseus_ds.guard.open import Backend, NullGpu, ReadOnlyGpu, backends, choose


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pynvml that finds no driver, as on a machine without a GPU."""
    nvml = ModuleType("pynvml")

    class NVMLError(Exception):
        value = 12

    def init() -> None:
        raise NVMLError

    nvml.NVMLError = NVMLError
    nvml.NVMLError_FunctionNotFound = type("NVMLError_FunctionNotFound", (NVMLError,), {})
    nvml.nvmlDeviceSetGpuLockedClocks = None
    nvml.nvmlInit = init
    monkeypatch.setitem(sys.modules, "pynvml", nvml)


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


class Lockable(NullGpu):
    def __init__(self, request: DeviceRequest | None = None) -> None:
        super().__init__()

    def capabilities(self) -> Capabilities:
        return Capabilities((1410, 705), (), True, None, None, 0.0)


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
    asked: list[str] = []

    def guarded(gpu: Gpu, backend: str, _: int | None) -> Gpu:
        asked.append(backend)
        return gpu

    monkeypatch.setattr(sys.modules[choose.__module__], "open_guarded", guarded)
    monkeypatch.setattr(containment, "why_unguarded", lambda: why_not)
    monkeypatch.setattr(amd, "AmdGpu", Lockable)
    choice = choose(DeviceRequest("amdsmi", lock=lock, allow_unguarded_container=allowed))
    assert asked == (["amdsmi"] if taken == "guarded" else [])
    assert isinstance(choice.gpu, ReadOnlyGpu) == (taken == "read only")
    if taken == "read only":
        assert choice.gpu.capabilities().why_not.startswith(f"{IN_A_CONTAINER}: ")
