"""A node for one campaign: fake GPUs of both vendors, a small disk for journals, and its processes."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fake_nvml
from cases import TESTS, Case
from fake_amdsmi import FakeAmdsmi
from fake_nvml import FakeNvml

TRAINER = TESTS / "e2e" / "guard" / "trainer.py"
LAUNCHER = "import subprocess, sys\nsys.exit(subprocess.call(sys.argv[1:]))\n"
_DISK_BYTES = 256 << 10


class Node:
    """A GPU of each vendor, their guards' folder, and everything that was started there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gpu = FakeNvml(folder / "gpus", 1)
        self.amd = FakeAmdsmi(folder / "amd_gpus", 1)
        self.disk = folder / "disk"
        self.guards = self.disk / "guard"
        self.socket = folder / "guardd.sock"
        self.launcher = folder / "torchrun"
        self.launcher.write_text(LAUNCHER)
        self.disk.mkdir()
        self.has_disk = self._mount()
        os.environ.update(self.amd.environment())
        os.environ.update(self.gpu.environment())
        os.environ["PERSEUS_GUARD_DIR"] = str(self.guards)
        os.environ["PERSEUS_GUARDD_SOCKET"] = str(self.socket)

    @property
    def locked(self) -> bool:
        """Whether a GPU's clock is locked, seen from outside."""
        return any(self.gpu.locked_mhz() + self.amd.limits_mhz())

    def set_driver(self, case: Case) -> None:
        """Make the driver as slow as the case demands."""
        state = self.gpu.state.gpu[0]
        state.call_us = {"10 ms": 10_000, "200 ms": 200_000}.get(case.driver, 0)
        state.settle_us = 3000
        state.jitter_mhz = 400 if case.clock == "jumping" else 0

    def strike(self, case: Case, *, for_s: float = 0.0) -> None:
        """Have calls of the driver fail by the case: now and then, and all of them for so long."""
        library = self.amd if case.vendor == "amd" else self.gpu
        library.strike(pct=case.errors_pct, for_s=for_s, code=case.code)

    def heal(self) -> None:
        """A driver as fast and a disk as fine as they should be; its errors stay for the next start."""
        state = self.gpu.state.gpu[0]
        state.call_us = state.jitter_mhz = 0
        self.disk_as("fine")

    def clean(self) -> None:
        """Forget everything, between two cases."""
        self.gpu.strike(0)
        self.amd.strike(0)
        self.gpu.state.gpu[0].locked_mhz = self.amd.state.gpu[0].limit_mhz = 0
        shutil.rmtree(self.guards, ignore_errors=True)

    def disk_as(self, how: str) -> None:
        """Fill the guards' disk, make it read-only, remove their folder, or put it right."""
        filler = self.disk / "filler"
        if how == "folder removed":
            shutil.rmtree(self.guards, ignore_errors=True)
        elif how == "full" and self.has_disk:
            with contextlib.suppress(OSError), filler.open("wb") as file:
                file.write(bytes(2 * _DISK_BYTES))
        elif how == "read-only" and self.has_disk:
            self._remount("ro")
        elif how == "fine":
            self._remount("rw")
            filler.unlink(missing_ok=True)

    def start(self, case: Case) -> subprocess.Popen[str]:
        """Start the case's trainer, below a launcher or in a container where the case has one."""
        device = "automatic" if case.service else {"nvidia": "nvml", "amd": "amdsmi"}[case.vendor]
        words = [sys.executable, str(TRAINER), str(case.number), case.how, device]
        if case.victim == "launcher":
            words = [sys.executable, str(self.launcher), *words]
        if case.in_container:
            inside = words if case.victim == "container" else ["sh", "-c", f"{shlex.join(words)}; exit 1"]
            words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *inside]
        return subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )

    @contextlib.contextmanager
    def service(self, case: Case) -> Iterator[None]:
        """The node's service beside the job, where the case has one."""
        if not case.service:
            yield
            return
        guardd, log = [sys.executable, "-m", "perseus_ds", "guardd"], self.folder / "guardd.log"
        words = ["--socket", str(self.socket), "--allow", "gpus=*"]
        with log.open("w") as out:
            process = subprocess.Popen([*guardd, *words], stdout=out, stderr=out)
        try:
            assert wait_until(lambda: "listening on" in log.read_text(), 60.0) is not None, log.read_text()
            yield
        finally:
            process.kill()
            process.wait()
            self.socket.unlink(missing_ok=True)

    def processes(self) -> dict[int, list[str]]:
        """Everything that runs on this node: number and command line."""
        return self.gpu.processes()

    def end_all(self) -> None:
        """End every process of this node, the service apart: workers that were forked, for one."""
        for pid, words in self.processes().items():
            if str(self.socket) not in words:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def end_all_gently(self) -> None:
        """End the trainers, who starts them first; wait until their guards have done their duty."""
        while trainers := [pid for pid, words in self.processes().items() if str(TRAINER) in words]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(min(trainers), signal.SIGKILL)
        wait_until(lambda: not self.locked and not self._guards(), 60.0)

    def _guards(self) -> list[int]:
        return [pid for pid, words in self.processes().items() if "perseus_ds.guard" in words]

    def close(self) -> None:
        """Unmount the disk."""
        self.end_all()
        if self.has_disk:
            subprocess.run(["umount", "--lazy", str(self.disk)], check=False)

    def _mount(self) -> bool:
        options = f"size={_DISK_BYTES},mode=700"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "perseus-kills", str(self.disk)],
            check=False,
            capture_output=True,
        )
        return done.returncode == 0

    def _remount(self, how: str) -> None:
        if self.has_disk:
            command = ["mount", "-o", f"remount,{how}", str(self.disk)]
            subprocess.run(command, check=False, capture_output=True)


def wait_until(true: Callable[[], bool], limit_s: float) -> float | None:
    """Seconds until something is so; ``None``: it was not, in this time."""
    began_s = time.monotonic()
    while time.monotonic() < began_s + limit_s:
        if true():
            return time.monotonic() - began_s
        time.sleep(0.001)
    return None


fake_nvml.load()
