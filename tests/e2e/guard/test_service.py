"""guardd as a real process: leases, rights, the floor, and hostile clients."""

import contextlib
import json
import os
import random
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_nvml import UUID, FakeNvml
from processes import EVERYTHING, Daemon, ask, eventually, lock

from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.errors import DeviceUnsupportedError
from perseus_ds.guard.open import choose
from perseus_ds.guard.protocol import MAX_BYTES

pytestmark = pytest.mark.e2e


def test_the_floor_is_the_lowest_clock_that_a_job_sees(start: Callable[..., Daemon]) -> None:
    start(EVERYTHING, floor_mhz=1000)
    with choose(DeviceRequest("guardd")).gpu as gpu:
        assert gpu.capabilities().clocks_mhz[-1] == 1005
        with pytest.raises(DeviceUnsupportedError):
            gpu.lock_clock(900)


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_socket_is_closed_to_others(node: FakeNvml) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        daemon = Daemon(Path(folder) / "guardd.sock", EVERYTHING)
        with nobody(), pytest.raises(PermissionError):
            daemon.connect()
        daemon.path.chmod(0o666)  # the control: it was the mode that kept nobody out
        with nobody(), daemon.connect():
            pass
        daemon.end()


def test_a_silent_client_loses_its_clock_and_may_speak_again(
    node: FakeNvml, start: Callable[..., Daemon]
) -> None:
    sock, _ = start(EVERYTHING).take(lease_s=0.2)
    with sock:
        lock(sock, 900)
        assert node.locked_mhz() == [900, 0]
        assert eventually(lambda: node.locked_mhz() == [0, 0])
        sock.send(b'{"do":"lock","number":2,"clock_mhz":900}')
        assert eventually(lambda: node.locked_mhz() == [900, 0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_service_that_is_asked_to_end_puts_all_back(
    node: FakeNvml, start: Callable[..., Daemon], number: signal.Signals
) -> None:
    daemon = start(EVERYTHING)
    with daemon.take(0)[0] as first, daemon.take(1)[0] as second:
        for sock in (first, second):
            lock(sock, 900)
        assert node.locked_mhz() == [900, 900]
        daemon.end(number)
        assert node.locked_mhz() == [0, 0]


def test_two_hundred_clients_and_half_open_connections_harm_no_lease(
    node: FakeNvml, start: Callable[..., Daemon]
) -> None:
    daemon = start(EVERYTHING)
    descriptors = Path(f"/proc/{daemon.process.pid}/fd")
    holder, _ = daemon.take()
    before = len(list(descriptors.iterdir()))
    with contextlib.ExitStack() as stack:
        stack.enter_context(holder)
        crowd = [stack.enter_context(daemon.connect()) for _ in range(200)]
        for sock in crowd[::2]:
            assert ask(sock, do="lock", number=1, clock_mhz=210)["is"] == "refused"
        for sock in crowd[::3]:
            sock.shutdown(socket.SHUT_WR)
        lock(holder, 900)
        assert node.locked_mhz() == [900, 0]
    assert eventually(lambda: len(list(descriptors.iterdir())) < before), "nothing of a client stays"


def packet(draw: random.Random) -> bytes:
    """Noise, almost messages, and messages that nobody has a right to."""
    sort = draw.randrange(4)
    if sort == 0:
        return draw.randbytes(draw.randrange(1, 300))
    if sort == 1:
        return draw.randbytes(MAX_BYTES + draw.randrange(1, 3000))
    verbs = ["take", "lock", "reset", "sync", "beat", "stop", "", None, 7]
    values = [
        1,
        -1,
        1e400,
        1e308,
        900,
        None,
        "x",
        True,
        "../../etc/passwd",
        "\ud800",
        "é\0",
        "nvml",
        [1],
        {"a": 1},
        UUID.format(0),
    ]
    keys = ("uuid", "owner", "backend", "lease_s", "number", "clock_mhz")
    message = {"do": draw.choice(verbs), **{key: draw.choice(values) for key in keys if draw.random() < 0.7}}
    text = json.dumps(message).encode()
    return text if sort == 2 else text[: draw.randrange(1, len(text))] + draw.randbytes(draw.randrange(5))


def test_ten_thousand_hostile_messages_change_nothing(node: FakeNvml, start: Callable[..., Daemon]) -> None:
    daemon = start(EVERYTHING)
    holder, _ = daemon.take(0)
    draw, sock = random.Random(1), daemon.connect()
    with holder:
        lock(holder, 900)
        sets, answers = node.state.gpu[0].sets, 0
        for _ in range(10_000):
            if draw.random() < 0.01:
                sock.close()
                sock = daemon.connect()
            with contextlib.suppress(OSError):
                sock.send(packet(draw))
                sock.setblocking(False)
                answers += bool(sock.recv(MAX_BYTES))
            sock.settimeout(20)
        sock.close()
        assert answers > 3000
        assert daemon.process.poll() is None
        assert node.state.gpu[0].sets == sets
        assert node.locked_mhz() == [900, 0]
        assert ask(holder, do="sync")["is"] == "synced"
