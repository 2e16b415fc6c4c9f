"""A GPU whose driver hangs holds up no other lease of the node's service."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from fake_nvml import FakeNvml
from processes import EVERYTHING, Daemon, eventually, lock

pytestmark = pytest.mark.e2e

GPUS, CALL_S = 8, 4.0


@pytest.fixture
def node_of_eight(node: FakeNvml, tmp_path: Path) -> FakeNvml:
    eight = FakeNvml(tmp_path / "gpus", gpus=GPUS)
    eight.state.apart = 1
    return eight


def test_requests_and_restores_of_others_do_not_wait(node_of_eight: FakeNvml, tmp_path: Path) -> None:
    node, daemon = node_of_eight, Daemon(tmp_path / "guardd.sock", EVERYTHING)
    try:
        with ExitStack() as leases:
            first, *others = [leases.enter_context(daemon.take(index)[0]) for index in range(GPUS)]
            node.state.gpu[0].call_us = int(CALL_S * 1e6)
            first.send(b'{"do":"lock","number":1,"clock_mhz":900}')
            time.sleep(0.1)  # until the service is in the driver's call
            began_s = time.monotonic()
            for sock in others:
                lock(sock, 705)
            assert node.locked_mhz() == [0] + [705] * (GPUS - 1)  # the first call still lasts
            for sock in others:
                sock.close()
            assert eventually(lambda: not any(node.locked_mhz()))
            print(f"7 requests and 7 restores beside a hanging call: {time.monotonic() - began_s:.3f} s")  # noqa: T201
            assert node.state.gpu[0].sets == 0
            assert eventually(lambda: node.locked_mhz()[0] == 900)
            node.state.gpu[0].call_us = 0
    finally:
        daemon.end()
    assert not any(node.locked_mhz())
