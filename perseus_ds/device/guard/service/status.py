"""Ask the node's service who holds which GPU: for an operator, beside all jobs."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass

from perseus_ds.device.guard.protocol import MAX_BYTES, MalformedError, Message, decode, encode, refused
from perseus_ds.errors import DeviceError, DeviceUnavailableError, DeviceUnsupportedError

_ANSWER_S = 20.0
_OLDER = "take a GPU first"
"""What releases before this question answer."""


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The service's release, rules and leases, as it reports them."""

    version: str
    rules: int
    floor_mhz: int
    leases: tuple[Message, ...]


def service_status(connect: Callable[[], socket.socket]) -> ServiceStatus:
    """Ask once.

    Raises:
        DeviceError: it is not there, does not answer, refuses, or is older than the question.
    """
    leases: list[Message] = []
    refusal: DeviceError | None = None
    with connect() as sock:
        sock.settimeout(_ANSWER_S)
        try:
            with contextlib.suppress(OSError):  # who hung up at once has said what there is to know
                sock.send(encode({"do": "status"}))
            while packet := sock.recv(MAX_BYTES):
                answer = decode(packet)
                if answer.get("is") == "lease":
                    leases.append(answer)
                elif answer.get("is") == "status":
                    return _status(answer, leases)
                elif answer.get("message") == _OLDER:
                    break
                else:
                    refusal = refused(answer)
        except (OSError, MalformedError) as error:
            raise refusal or DeviceUnavailableError("the service does not answer") from error
    raise refusal or DeviceUnsupportedError("the service is of an older release: it does not list its leases")


def _status(answer: Message, leases: list[Message]) -> ServiceStatus:
    rules, floor_mhz = answer.get("rules"), answer.get("floor_mhz")
    return ServiceStatus(
        version=str(answer.get("version")),
        rules=rules if isinstance(rules, int) else 0,
        floor_mhz=floor_mhz if isinstance(floor_mhz, int) else 0,
        leases=tuple(leases),
    )
