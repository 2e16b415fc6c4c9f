"""Processes of the guard's tests: a trainer with its guard, the node's service, and what is asked of them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import UUID, FakeNvml
from hosts import eventually

from perseus_ds.guard.client import GuardedGpu
from perseus_ds.guard.protocol import KIND, MAX_BYTES

Start = Callable[..., "Daemon"]
"""Starts the node's service with rules (fixture ``start``)."""

GUARDD = (sys.executable, "-m", "perseus_ds", "guardd")
TRAINER = Path(__file__).with_name("trainer.py")


class Job:
    """A running trainer and its guard; ``command`` is what else starts the trainer."""

    def __init__(self, how: str = "runs", command: Sequence[str] = ()) -> None:
        words = command or [sys.executable, str(TRAINER), "0", how]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(words, start_new_session=True, **pipes)
        self.guard = int(self.process.stdout.readline())

    def kill_trainer(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.process.pid, number)

    def kill_guard(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.guard, number)

    def kill_both(self) -> None:
        """Stop the trainer first: on a busy host it would put the clock back when it sees its guard gone."""
        self.kill_trainer(signal.SIGSTOP)
        self.kill_guard()
        self.kill_trainer()

    def ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self) -> None:
        self.process.stdout.close()
        self.process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def locking_job(node: FakeNvml, how: str = "runs") -> Job:
    """A job that has set a clock."""
    job = Job(how)
    assert eventually(lambda: not free(node))
    return job


class Daemon:
    """The node's service as its command starts it, with its log beside its socket."""

    def __init__(self, path: Path, *words: str, before: Sequence[str] = (), **environment: str) -> None:
        self.path, self.log = path, path.with_suffix(".log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*before, *GUARDD, "--socket", str(path), *words],
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
            )

    def says(self, text: str) -> bool:
        return eventually(lambda: text in self.log.read_text())

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, KIND)
        try:
            sock.connect(str(self.path))
        except OSError:
            sock.close()
            raise
        sock.settimeout(20)
        return sock

    def take(self, index: int = 0) -> tuple[socket.socket, dict[str, object]]:
        """Ask for a lease on a GPU."""
        sock, uuid = self.connect(), UUID.format(index)
        return sock, ask(sock, do="take", uuid=uuid, owner="a job", backend="nvml", lease_s=30.0)

    def gives(self, index: int = 0) -> bool:
        """Say whether a lease on a GPU is free."""
        sock, answer = self.take(index)
        sock.close()
        return answer["is"] == "taken"

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)


def serving(path: Path, *words: str, **how: Any) -> Daemon:  # noqa: ANN401
    """A service that listens."""
    daemon = Daemon(path, *words, **how)
    assert daemon.says("listening on"), daemon.log.read_text()
    return daemon


def allowing(*rules: str) -> list[str]:
    """The command's words for some rules, or for one that allows everything."""
    return [word for rule in rules or ("gpus=*",) for word in ("--allow", rule)]


def ask(sock: socket.socket, **message: object) -> dict[str, object]:
    sock.send(json.dumps(message).encode())
    return json.loads(sock.recv(MAX_BYTES))


def lock(sock: socket.socket, clock_mhz: int) -> None:
    sock.send(b'{"do":"lock","number":1,"clock_mhz":%d}' % clock_mhz)
    assert ask(sock, do="sync")["is"] == "synced"


def set_clock(gpu: GuardedGpu, clock_mhz: int) -> None:
    """Ask for a clock, and wait until the guard has answered: its refusal may cross the request."""
    gpu.lock_clock(clock_mhz)
    gpu.sync()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        return state not in {"Z", "X"} or len([*Path(f"/proc/{pid}/task").iterdir()]) > 1
    except OSError:
        return False


def free(node: FakeNvml) -> bool:
    return node.locked_mhz() == [0, 0]


@contextlib.contextmanager
def control_group(controller: str, **limits: int) -> Iterator[Path]:
    """A control group of the tests, of either version, with the limits that its version has."""
    roots = (Path("/sys/fs/cgroup") / controller, Path("/sys/fs/cgroup"))
    root = next((root for root in roots if (root / "cgroup.procs").exists()), None)
    if root is None:
        pytest.skip("no control groups are mounted")
    group = root / f"perseus-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        if not list(group.glob(f"{controller}.*")):
            pytest.skip(f"no {controller} controller for a group of ours")
        for name, value in limits.items():
            if (file := group / f"{controller}.{name.replace('__', '.')}").exists():
                file.write_text(str(value))
        yield group
        assert eventually(lambda: not (group / "cgroup.procs").read_text())
    finally:
        group.rmdir()


def let_others_pass(folder: Path) -> None:
    """Open pytest's own folders above this one, and itself, to other users."""
    for above in (folder, *folder.parents):
        if Path(tempfile.gettempdir()) in above.parents:
            above.chmod(0o755)


def no_container() -> str | None:
    """Say why no container can be made here."""
    if os.geteuid() != 0:
        return "unshare --pid needs root"
    tried = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"unshare --pid: {tried.stderr.strip()}"
