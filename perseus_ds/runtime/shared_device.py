"""A GPU for all engines of a process: opened once, with one queue of requests, held by one at a time."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

import torch

from perseus_ds.config import PerseusConfig
from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.settings import simulated_settings
from perseus_ds.errors import DeviceUnavailableError
from perseus_ds.guard.open import Choice, choose
from perseus_ds.runtime.adapter import Adapter
from perseus_ds.runtime.clocks import Ask, ClockThread

_PATIENCE_S = 2.0
_OPEN_S = 60.0
_AT_EXIT_S = 45.0  # a guard insists for 30 s with a driver that refuses

_open: dict[DeviceRequest, SharedDevice] = {}
_closing: list[Future[None]] = []
"""Ends of devices that were not waited for."""

T = TypeVar("T")


class SharedDevice:
    """A device that was opened, and whose turn it is.

    Engines that train in turn share the queue of requests. A pending request is superseded by the next
    engine's. The current clock is compared against the last request of any engine.
    """

    def __init__(self, request: DeviceRequest, choice: Choice, *, patience_s: float = _PATIENCE_S) -> None:
        self._request = request
        self._users = 0
        self.holder: object = None
        self._requests: ClockThread | None = None
        self._patience_s = patience_s
        self._close_now, self._closed = threading.Event(), Future[None]()
        self.choice = choice
        if not isinstance(choice.gpu, SimulatedGpu):
            # It begins here, since from Python 3.12 on no thread can begin while the interpreter exits.
            threading.Thread(target=self._close_when_asked, name="perseus-close", daemon=True).start()

    def requests(self, enter: Callable[[], None] = lambda: None) -> ClockThread:
        """Return the queue, begun at first use by a thread that calls ``enter`` before anything else."""
        if self._requests is None:
            self._requests = ClockThread(self.choice.gpu, self.virtual_time, enter=enter)
        return self._requests

    @property
    def virtual_time(self) -> VirtualTime | None:
        """The time of a simulated device; None where it is the host's."""
        gpu = self.choice.gpu
        return gpu.virtual_time if isinstance(gpu, SimulatedGpu) else None

    def overrun_share(self) -> float:
        """Return the share of computations that took this host longer than the device that it simulates."""
        gpu = self.choice.gpu
        return gpu.truth.overrun_share if isinstance(gpu, SimulatedGpu) else 0.0

    def take(self, who: object) -> bool:
        """Give an engine the clocks; return whether another one has had them since."""
        changed, self.holder = self.holder is not who and self.holder is not None, who
        return changed

    def use(self) -> SharedDevice:
        """Add a user, who finds the default clock."""
        if self._users:
            self._ask_default()
        self._users += 1
        return self

    def release(self) -> None:
        """Give the clock back; after the last user close the device.

        Raises:
            DeviceError: it failed, or has not answered yet: the end of the process waits for that.
        """
        self._users -= 1
        if self._users > 0:
            self._ask_default()
            return
        _open.pop(self._request, None)
        if isinstance(self.choice.gpu, SimulatedGpu):
            self._close()
            return
        self._close_now.set()  # beside the training, which waits for a moment
        try:
            self._closed.result(self._patience_s)
        except TimeoutError:
            _closing.append(self._closed)
            silent = DeviceUnavailableError("the driver does not answer: its clock is put back when it does")
            raise silent from None

    def _close(self) -> None:
        try:
            if self._requests is not None:
                self._requests.close()
        finally:
            self.choice.gpu.close()

    def _close_when_asked(self) -> None:
        self._close_now.wait()
        _complete(self._closed, self._close)

    def _ask_default(self) -> None:
        self.holder = self
        if self._requests is not None:
            self._requests.put((Ask(None),), self.choice.gpu.now_s())


@atexit.register
def _finish_all() -> None:
    wait(_closing, _AT_EXIT_S)


def request_of(adapter: Adapter, config: PerseusConfig, *, rank: int) -> DeviceRequest:
    """Return which device a rank asks for, and how."""
    uuid = pci_bus_id = None
    if adapter.device.type == "cuda":
        properties = torch.cuda.get_device_properties(adapter.device)
        uuid, pci_bus_id = address_of(properties, hip=torch.version.hip is not None)
    simulated = simulated_settings(config.simulated, rank=rank) if config.device == "simulated" else None
    return DeviceRequest(
        setting=config.device,
        local_rank=adapter.local_rank,
        uuid=uuid,
        pci_bus_id=pci_bus_id,
        simulated=simulated,
        lock=config.mode != "observe",
        allow_unguarded_container=config.allow_unguarded_container,
        restore_clock_mhz=config.restore_clock_mhz,
    )


def address_of(properties: object, *, hip: bool) -> tuple[str | None, str | None]:
    """Return a device's UUID, or on HIP its PCI bus id: UUIDs are not amdsmi's before ROCm 7.12."""
    numbers = [getattr(properties, f"pci_{part}_id", -1) for part in ("domain", "bus", "device")]
    if not hip or -1 in numbers:
        return f"GPU-{getattr(properties, 'uuid')}", None  # noqa: B009  # torch's record is not typed
    domain, bus, number = numbers
    return None, f"{domain:04x}:{bus:02x}:{number:02x}.0"


def shared_device(request: DeviceRequest, *, patience_s: float = _OPEN_S) -> SharedDevice:
    """Open a device, or use the one that another engine of this process has opened.

    Raises:
        DeviceError: it cannot be opened, or its driver does not answer.
    """
    if request not in _open:
        choice = choose(request) if request.simulated else _chosen_in_time(request, patience_s)
        _open[request] = SharedDevice(request, choice)
    return _open[request].use()


def _chosen_in_time(request: DeviceRequest, patience_s: float) -> Choice:
    """Open a device beside the training, which does not wait for ever; one that comes later is closed."""
    chosen: Future[Choice] = Future()
    opens = threading.Thread(
        target=_complete, args=(chosen, lambda: choose(request)), name="perseus-open", daemon=True
    )
    opens.start()
    try:
        return chosen.result(patience_s)
    except TimeoutError:
        chosen.add_done_callback(_close_late)
        silent = DeviceUnavailableError(f"the driver has not answered for {patience_s:g} s")
        raise silent from None


def _complete(done: Future[T], act: Callable[[], T]) -> None:
    """Do something, for who waits for it on another thread."""
    try:
        result = act()
    except Exception as error:  # noqa: BLE001  # raised by who waits for it
        done.set_exception(error)
    else:
        done.set_result(result)


def _close_late(opened: Future[Choice]) -> None:
    if opened.exception() is None:
        opened.result().gpu.close()
