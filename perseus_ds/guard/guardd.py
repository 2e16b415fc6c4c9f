"""The node service that may set clocks (``perseus-ds guardd``): clocks there, readings here."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from perseus_ds.device.gpu import DeviceRequest, Gpu
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import DeviceError, DevicePermissionError, DeviceUnavailableError
from perseus_ds.guard.client import GuardClient
from perseus_ds.guard.guarded_gpu import GuardedGpu
from perseus_ds.guard.protocol import KIND, encode, first_answer, refused
from perseus_ds.guard.service import DEFAULT_SOCKET

_PRIORITY_WITH_LOCK, _PRIORITY_READ_ONLY = 95.0, 10.0


def priority(request: DeviceRequest) -> float:
    """Best where clocks will be set: an operator who runs the service wants it used.

    Raises:
        DeviceError: no service, no right to this GPU, or no such GPU here.
    """
    with _connect() as sock, NvmlGpu(request) as gpu:
        if request.lock:
            _check_allowed(sock, gpu.identify().uuid)
    return _PRIORITY_WITH_LOCK if request.lock else _PRIORITY_READ_ONLY


def open_gpu(request: DeviceRequest) -> Gpu:
    """Take the GPU's lease from the service, or only read where no clocks will be set.

    Raises:
        DeviceError: refused (allow list, another owner), or the service is gone.
    """
    reader = NvmlGpu(request)
    if not request.lock:
        return reader
    client: GuardClient | None = None
    try:
        client = GuardClient(_connect(), connect=_connect)
        return GuardedGpu(reader, client)
    except DeviceError:
        if client is not None:
            client.close()
        reader.close()
        raise


def socket_path() -> Path:
    """Where the service listens: ``PERSEUS_GUARDD_SOCKET``, or its default."""
    return Path(os.environ.get("PERSEUS_GUARDD_SOCKET", DEFAULT_SOCKET))


def _check_allowed(sock: socket.socket, uuid: str) -> None:
    """Ask the service whether it would hand a GPU over; one that does not know the question is not observed.

    Raises:
        DevicePermissionError: its operator's rules do not let us.
        DeviceUnavailableError: it does not answer.
    """
    answer = first_answer(sock, encode({"do": "may", "uuid": uuid, "backend": "nvml"}))
    refusal = refused(answer)
    if answer.get("is") == "refused" and isinstance(refusal, DevicePermissionError):
        raise refusal


def _connect() -> socket.socket:
    return connect(socket_path())


def connect(path: Path) -> socket.socket:
    """Connect to the service that listens there.

    Raises:
        DevicePermissionError: the socket is not for this user.
        DeviceUnavailableError: nobody listens.
    """
    sock = socket.socket(socket.AF_UNIX, KIND)
    try:
        sock.connect(str(path))
    except PermissionError as error:
        sock.close()
        raise DevicePermissionError(f"may not open {path}", hint="join the group of the socket") from error
    except OSError as error:
        sock.close()
        raise DeviceUnavailableError(
            f"no guardd listens on {path}", hint="ask the operator for perseus-ds guardd"
        ) from error
    return sock
