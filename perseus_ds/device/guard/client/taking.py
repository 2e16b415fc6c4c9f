"""A guard asked for a GPU: once, and again when it was gone, until it hands it over or refuses for good."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from perseus_ds.device.guard.claim.patience import may_pass, pauses_s
from perseus_ds.device.guard.client.heartbeat import Heartbeat
from perseus_ds.device.guard.protocol import first_answer, refused
from perseus_ds.errors import DeviceError


@dataclass(frozen=True, slots=True)
class Taken:
    """The answer of a guard that hands a GPU over, with the least clock that it sets.

    ``dated``: it makes requests at moments to come, by a clock that is ours too.
    """

    floor_mhz: int
    dated: bool = False


def take(sock: socket.socket, wanted: bytes, heartbeat: Heartbeat) -> Taken:
    """Ask for a GPU; from its answer on the guard has to answer beats, if it announces that it does.

    Raises:
        DeviceError: refused, or no answer.
    """
    asked_s = time.monotonic()
    answer = first_answer(sock, wanted)
    if answer.get("is") != "taken":
        raise refused(answer)
    sock.setblocking(False)
    heartbeat.answers = answer.get("beats") is True
    heartbeat.start()
    floor_mhz = answer.get("floor_mhz")
    now_s = answer.get("now_s")  # another time namespace has another one
    return Taken(
        floor_mhz if isinstance(floor_mhz, int) else 0,
        dated=isinstance(now_s, float) and asked_s <= now_s <= time.monotonic(),
    )


def take_again(
    connect: Callable[[], socket.socket], wanted: bytes, heartbeat: Heartbeat, *, over: threading.Event
) -> socket.socket | None:
    """Ask, ever less often, until the GPU is ours again; ``None``: it is ``over`` before.

    Cost: a call to a socket; at last ten of them a second.

    Raises:
        DeviceError: refused for good.
    """
    pauses = pauses_s()
    while not over.wait(next(pauses)):
        try:
            sock = connect()
        except DeviceError:  # not there yet
            continue
        try:
            take(sock, wanted, heartbeat)
        except DeviceError as error:
            sock.close()
            if not may_pass(error):
                raise
        else:
            return sock
    return None
