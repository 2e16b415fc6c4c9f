"""A client and the guard's end of its connection, over a real socket pair, without a driver."""

import json
import socket
import time

import pytest

from perseus_ds.device.clock_agenda import DatedClock
from perseus_ds.errors import DeviceLostError, DeviceUnavailableError
from perseus_ds.guard.claim import OwnershipLock
from perseus_ds.guard.client import GuardedGpu
from perseus_ds.guard.connection import ClientConnection, Server
from perseus_ds.guard.open import NullGpu
from perseus_ds.guard.policy import ALLOW_ALL, Peer
from perseus_ds.guard.protocol import KIND, MAX_BYTES, encode, refusal

INDEX = 1
TAKE = {"do": "take", "uuid": f"null-{INDEX}", "owner": "test", "backend": "nvml", "lease_s": 30}


class LostGpu(NullGpu):
    """A GPU that falls off the bus at its first reading of a chosen kind."""

    def __init__(self, what: str) -> None:
        super().__init__(INDEX)
        setattr(self, what, self._fall)

    def _fall(self) -> None:
        raise DeviceLostError("gone")


@pytest.mark.parametrize("what", ["achieved", pytest.param("operator_settings", marks=pytest.mark.slow)])
def test_a_gpu_that_is_lost_while_it_is_taken_is_refused_and_its_lease_is_free_again(what: str) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, KIND)
    connection = ClientConnection(theirs, Peer(0, 0, 0), Server(ALLOW_ALL, open_gpu=lambda *_: LostGpu(what)))
    with ours:
        ours.send(encode(TAKE))
        connection.receive()
        answer = json.loads(ours.recv(MAX_BYTES))
        assert (answer["is"], answer["kind"]) == ("refused", "DeviceLostError")
        OwnershipLock(f"null-{INDEX}", "the next").release()
        assert connection.end() is None


def test_a_guards_last_words_are_heard_though_it_left_ours_unread() -> None:
    ours, guard = socket.socketpair(socket.AF_UNIX, KIND)
    guard.send(b'{"is":"taken","floor_mhz":0}')
    client = GuardedGpu(NullGpu(), ours)
    # what stays unread, with the request to take: the kernel resets the connection
    client.requests.ask([DatedClock(0.0, 900)])
    guard.send(encode(refusal(DeviceUnavailableError("the job's launcher is gone"))))
    guard.close()
    client._listener.join(20)
    assert not client._listener.is_alive()
    assert "launcher" in str(client.given_up())


def test_who_takes_no_gpu_has_half_a_minute() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, KIND)
    before_s, server = time.monotonic(), Server(ALLOW_ALL, open_gpu=lambda *_: NullGpu(INDEX))
    connection = ClientConnection(theirs, Peer(0, 0, 0), server)
    after_s = time.monotonic()
    with ours:
        assert before_s + 30.0 <= connection.due_s() <= after_s + 30.0
        assert not connection.idle
        connection.end()
