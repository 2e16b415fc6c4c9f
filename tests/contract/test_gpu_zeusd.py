"""The zeusd backend keeps the contract, against a stand-in for the daemon on the fake driver."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from urllib.parse import parse_qs, urlsplit

import pytest
from fake_nvml import FakeNvml

from perseus_ds.device import DeviceRequest, Gpu
from perseus_ds.device.choose import choose
from perseus_ds.device.guard import GuardedGpu
from perseus_ds.device.nvidia.zeusd import ZeusdGpu
from perseus_ds.errors import DeviceError, DeviceUnavailableError
from perseus_ds.testing.gpu_contract import GpuContract


class Zeusd(ThreadingMixIn, UnixStreamServer):
    """Answers as the daemon's documentation says; its GPUs are the node's."""

    daemon_threads = True

    def __init__(self, path: Path, node: FakeNvml) -> None:
        super().__init__(str(path), Handler)
        self.node = node
        self.counts = json.dumps({"gpu_ids": list(range(node.state.gpus)), "cpu_ids": []})
        self.asked: list[str] = []

    def do(self, verb: str, query: dict[str, list[str]]) -> tuple[int, str]:
        self.asked.append(verb)
        if query.get("block") != ["true"] or "gpu_ids" not in query:
            return 400, "missing parameter"
        gpu = self.node.state.gpu[int(query["gpu_ids"][0])]
        if gpu.denied:
            return 500, "NVML: insufficient permissions"
        gpu.locked_mhz = 0 if verb.startswith("reset") else int(query["max_clock_mhz"][0])
        return 200, ""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer(200 if self.server.counts else 404, self.server.counts)

    def do_POST(self) -> None:
        parts = urlsplit(self.path)
        self.answer(*self.server.do(parts.path.removeprefix("/gpu/"), parse_qs(parts.query)))

    def answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None: ...

    def address_string(self) -> str:
        return "unix"


@pytest.fixture
def zeusd(node: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Zeusd]:
    path = tmp_path / "zeusd.sock"
    monkeypatch.setenv("ZEUSD_SOCK_PATH", str(path))
    with Zeusd(path, node) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class TestZeusdGpu(GpuContract):
    @pytest.fixture
    def gpu(self, zeusd: Zeusd) -> Iterator[Gpu]:
        with ZeusdGpu(DeviceRequest("zeusd", local_rank=1)) as gpu:
            yield gpu


@pytest.mark.e2e
def test_the_daemon_is_put_behind_our_guard_since_it_resets_nothing(node: FakeNvml, zeusd: Zeusd) -> None:
    choice = choose(DeviceRequest("zeusd", local_rank=1))
    assert isinstance(choice.gpu, GuardedGpu)
    choice.gpu.lock_clock(900)
    choice.gpu.sync()
    assert node.locked_mhz() == [0, 900]
    choice.gpu.close()
    assert node.locked_mhz() == [0, 0]


def test_what_the_daemon_refuses_is_said_with_its_own_words(node: FakeNvml, zeusd: Zeusd) -> None:
    node.state.gpu[0].denied = 1
    with ZeusdGpu(DeviceRequest("zeusd")) as gpu, pytest.raises(DeviceError, match="500 NVML: insufficient"):
        gpu.lock_clock(900)


def test_without_a_daemon_the_remedy_is_named(node: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUSD_SOCK_PATH", "/nowhere/zeusd.sock")
    with pytest.raises(DeviceUnavailableError, match=r"no zeusd answers on /nowhere.*set ZEUSD_SOCK_PATH"):
        choose(DeviceRequest("zeusd"))


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        (json.dumps({"gpu_ids": list(range(8))}), "sees 2 of the node's GPUs and zeusd counts 8"),
        (json.dumps({"gpu_ids": [0]}), "zeusd counts 1"),
        (json.dumps({"gpu_ids": []}), "does not report how many"),
        ("", r"zeusd (does not report how many|counts \d+)"),
    ],
    ids=["a part of the node", "a part of ours", "none", "an old daemon"],
)
def test_a_daemon_that_counts_other_gpus_is_never_asked_to_set_one(
    zeusd: Zeusd, counts: str, says: str
) -> None:
    """In a device cgroup our index 0 is another user's GPU to the daemon."""
    zeusd.counts = counts
    with pytest.raises(DeviceUnavailableError, match=says):
        choose(DeviceRequest("zeusd"))
    assert zeusd.asked == []
