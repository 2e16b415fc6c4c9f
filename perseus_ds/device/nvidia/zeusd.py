"""NVIDIA GPUs whose clocks Zeus's daemon sets: HTTP over its Unix socket, readings through NVML here.

zeusd keeps no lease and resets nothing when a client dies, so this backend is put behind our guard. It names
GPUs by its own NVML index, which is ours only where we see every GPU that it sees. Otherwise a job that was
given some of a node's would set the clock of another user's.

Source: docs of ml-energy/zeus, ``POST /gpu/set_gpu_locked_clocks`` with query parameters, ``GET /discover``.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

from perseus_ds.device.nvidia.nvml import NvmlGpu
from perseus_ds.device.read_through import ReadThroughGpu
from perseus_ds.device.request import DeviceRequest
from perseus_ds.errors import DeviceError, DevicePermissionError, DeviceUnavailableError

_DEFAULT_SOCKET = "/var/run/zeusd.sock"
_PRIORITY_WITH_LOCK, _PRIORITY_READ_ONLY = 80.0, 5.0
_ANSWER_S = 10.0
_MOST_BYTES = 65_536
_PCI_DRIVER = Path("/sys/bus/pci/drivers/nvidia")  # sysfs shows all of a node's, in containers too
_STARTS = "start zeusd, or set ZEUSD_SOCK_PATH"


def priority(request: DeviceRequest) -> float:
    """Good where clocks will be set and NVML itself would refuse it.

    Raises:
        DeviceError: no daemon, no such GPU here, or the daemon counts more GPUs than we do.
    """
    ZeusdGpu(request).close()
    return _PRIORITY_WITH_LOCK if request.lock else _PRIORITY_READ_ONLY


class ZeusdGpu(ReadThroughGpu):
    """One GPU through the daemon; each call waits until the driver has taken it."""

    def __init__(self, request: DeviceRequest) -> None:
        theirs = _count()
        reader = NvmlGpu(request)
        try:
            _check_counted_alike(reader.count(), theirs)
        except DeviceError:
            reader.close()
            raise
        able = reader.capabilities()
        can_lock = bool(able.clocks_mhz)
        super().__init__(
            reader, replace(able, can_lock=can_lock, why_not=None if can_lock else "it lists no clocks")
        )

    def lock_clock(self, clock_mhz: int) -> None:
        """Have the daemon store a locked clock.

        Raises:
            DeviceUnsupportedError: the clock is not on the grid.
            DeviceError: the daemon is gone or refused.
        """
        self._check_clock(clock_mhz)
        self._post("set_gpu_locked_clocks", min_clock_mhz=clock_mhz, max_clock_mhz=clock_mhz)

    def reset_clock(self) -> None:
        """Have the daemon remove the lock."""
        self._post("reset_gpu_locked_clocks")

    def _post(self, verb: str, **numbers: int) -> None:
        query = urlencode({"gpu_ids": self.identify().index, **numbers, "block": "true"})
        _ask("POST", f"/gpu/{verb}?{query}")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(socket_path()))


def socket_path() -> Path:
    """Where the daemon listens: ``ZEUSD_SOCK_PATH`` as Zeus has it, or its default."""
    return Path(os.environ.get("ZEUSD_SOCK_PATH", _DEFAULT_SOCKET))


def _count() -> int | None:
    """How many GPUs the daemon counts; a silent daemon is taken to count all that sysfs lists.

    Raises:
        DeviceUnavailableError: no daemon.
    """
    told = _ask("GET", "/discover", tolerate=True)
    try:
        numbers = json.loads(told)["gpu_ids"]
    except (ValueError, KeyError, TypeError):
        numbers = list(_PCI_DRIVER.glob("*:*:*.*"))
    return len(numbers) or None


def _check_counted_alike(ours: int, theirs: int | None) -> None:
    """Refuse a daemon whose numbers may be those of other GPUs.

    Raises:
        DeviceUnavailableError: it counts others than we do, or does not state.
    """
    if ours != theirs:
        counts = "does not report how many" if theirs is None else f"counts {theirs}"
        raise DeviceUnavailableError(
            f"this job sees {ours} of the node's GPUs and zeusd {counts}: its numbers may be those of other "
            "users' GPUs",
            hint="run perseus-ds guardd on the node: it takes GPUs by UUID",
        )


def _ask(method: str, target: str, *, tolerate: bool = False) -> str:
    """Make one request and return its answer; one other than 200 is an error unless any will do."""
    connection = _UnixConnection("zeusd", timeout=_ANSWER_S)
    try:
        connection.request(method, target)
        answer = connection.getresponse()
        text = answer.read(_MOST_BYTES).decode(errors="replace").strip()
    except PermissionError as error:
        raise DevicePermissionError(f"may not open {socket_path()}", hint="ask the operator") from error
    except (OSError, http.client.HTTPException) as error:
        raise DeviceUnavailableError(f"no zeusd answers on {socket_path()}", hint=_STARTS) from error
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK and not tolerate:
        raise DeviceError(f"zeusd refused {target}: {answer.status} {text[:500]}")
    return text
