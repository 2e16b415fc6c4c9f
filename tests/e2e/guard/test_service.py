"""guardd as a real process: leases, rights, the floor, and clients that are many, or silent."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from fake_nvml import UUID, FakeNvml
from processes import Start, ask, control_group, eventually, lock

from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.errors import DevicePermissionError, DeviceUnavailableError
from perseus_ds.guard.open import choose

pytestmark = pytest.mark.e2e

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_service_that_is_asked_to_end_restores_all(
    node: FakeNvml, start: Start, number: signal.Signals
) -> None:
    daemon = start()
    with daemon.take(0)[0] as first, daemon.take(1)[0] as second:
        for sock in (first, second):
            lock(sock, 900)
        assert node.locked_mhz() == [900, 900]
        daemon.end(number)
        assert node.locked_mhz() == [0, 0]


GPUS, CALL_S = 8, 4.0


def test_a_driver_that_hangs_for_one_gpu_holds_up_no_other_lease(node: FakeNvml, start: Start) -> None:
    eight = FakeNvml(node.path, gpus=GPUS)
    eight.state.apart = 1
    daemon = start()
    with contextlib.ExitStack() as leases:
        first, *others = [leases.enter_context(daemon.take(index)[0]) for index in range(GPUS)]
        eight.state.gpu[0].call_us = int(CALL_S * 1e6)
        first.send(b'{"do":"lock","number":1,"clock_mhz":900}')
        time.sleep(0.1)  # until the service is in the driver's call
        for sock in others:
            lock(sock, 705)
        assert eight.locked_mhz() == [0] + [705] * (GPUS - 1)  # the first call still lasts
        for sock in others:
            sock.close()
        assert eventually(lambda: not any(eight.locked_mhz()))
        assert eight.state.gpu[0].sets == 0
        assert eventually(lambda: eight.locked_mhz()[0] == 900)
        eight.state.gpu[0].call_us = 0
    daemon.end()
    assert not any(eight.locked_mhz())


# Nobody but its holder ends a lease or starves the service.

CONNECTS = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
held, refused = [], 0
for _ in range(int(sys.argv[2])):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(sys.argv[1])
    sock.settimeout(60)
    held.append(sock)
    if len(held) >= 200:
        refused += sum(b'"refused"' in one.recv(4096) for one in held)
        [one.close() for one in held]
        held = []
print(refused)
"""


@as_root
def test_connects_of_a_user_on_no_rule_cost_the_holder_nothing(node: FakeNvml, start: Start) -> None:
    daemon = start("user=0 gpus=*")
    daemon.path.chmod(0o666)  # it is the service that keeps others out, not the socket
    for folder in daemon.path.parents:
        if Path(tempfile.gettempdir()) in folder.parents:  # those of pytest, however many
            folder.chmod(0o755)
    holder, _ = daemon.take()
    with holder:
        crowd = subprocess.Popen(
            [sys.executable, "-c", CONNECTS, str(daemon.path), "2000"], stdout=subprocess.PIPE, text=True
        )
        number = 0
        while crowd.poll() is None:
            number += 1
            holder.send(b'{"do":"lock","number":%d,"clock_mhz":%d}' % (number, 900 if number % 2 else 705))
            assert ask(holder, do="sync")["is"] == "synced"
        assert crowd.communicate()[0] == "2000\n"
        assert daemon.process.poll() is None
        assert node.locked_mhz()[0] in {900, 705}


def test_two_hundred_clients_and_half_open_connections_harm_no_lease(node: FakeNvml, start: Start) -> None:
    daemon = start()
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


@as_root
def test_a_thread_that_cannot_be_had_is_that_clients_refusal(node: FakeNvml, start: Start) -> None:
    daemon = start()
    holder, _ = daemon.take()
    with holder, contextlib.ExitStack() as stack:
        lock(holder, 900)
        with control_group("pids") as group:
            (group / "cgroup.procs").write_text(str(daemon.process.pid))
            (group / "pids.max").write_text(str(int((group / "pids.current").read_text()) + 3))
            crowd = [stack.enter_context(daemon.connect()) for _ in range(40)]
            told = [json.loads(sock.recv(4096)) for sock in crowd[3:]]
            assert all("cannot serve" in one["message"] for one in told)
            holder.send(b'{"do":"lock","number":2,"clock_mhz":705}')
            assert ask(holder, do="sync")["is"] == "synced"
            (group.parent / "cgroup.procs").write_text(str(daemon.process.pid))
        assert daemon.process.poll() is None
        assert node.locked_mhz() == [705, 0]
        assert daemon.gives(1)


def test_one_user_does_not_take_all_connections(start: Start) -> None:
    daemon = start()
    with contextlib.ExitStack() as stack:
        for _ in range(256):
            stack.enter_context(daemon.connect())
        extra = stack.enter_context(daemon.connect())
        assert "too many" in json.loads(extra.recv(4096))["message"]


FORKS = """
import os, socket, sys, time
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(sys.argv[1])
sock.send(b'{"do":"take","uuid":"%s","owner":"x","backend":"nvml","lease_s":600}' % sys.argv[2].encode())
sock.recv(4096)
sock.send(b'{"do":"lock","number":1,"clock_mhz":900}')
os.fork()
time.sleep(60)
"""


def test_a_lease_ends_with_its_taker_whoever_has_its_descriptor(node: FakeNvml, start: Start) -> None:
    words = [sys.executable, "-c", FORKS, str(start().path), UUID.format(0)]
    client = subprocess.Popen(words, start_new_session=True)
    try:
        assert eventually(lambda: node.locked_mhz() == [900, 0])
        client.kill()
        assert eventually(lambda: node.locked_mhz() == [0, 0])
    finally:
        os.killpg(client.pid, signal.SIGKILL)
        client.wait()


def test_the_backend_is_the_services_choice_and_an_owner_printable(start: Start) -> None:
    with start().connect() as sock:
        answer = ask(sock, do="take", uuid=UUID.format(0), owner="x\n\x1b[2J", backend="amdsmi", lease_s=30)
        assert answer["is"] == "taken"
        with pytest.raises(DeviceUnavailableError, match=r"held by.*process \d+") as caught:
            choose(DeviceRequest("guardd"))
        assert str(caught.value).isprintable()


def test_who_cannot_be_judged_gets_nothing(node: FakeNvml, start: Start) -> None:
    """This machine has no /dev/nvidia0: nobody may open it."""
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is a real GPU here")
    start("gpus=own")
    with pytest.raises(DevicePermissionError, match=r"may not|cannot tell"):
        choose(DeviceRequest("guardd"))
