"""A container as far as a guard's life goes: a PID namespace, which dies with its first process."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

TRAINER = Path(__file__).with_name("trainer.py")


def missing() -> str | None:
    """Say why no container can be made here."""
    if os.geteuid() != 0:
        return "unshare --pid needs root"
    tried = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"unshare --pid: {tried.stderr.strip()}"


class Container:
    """A trainer in a container of its own; ``first`` says that it is the container's first process."""

    def __init__(
        self,
        *,
        device: str = "automatic",
        first: bool = True,
        seed: int = 0,
        risk: bool = False,
        how: str = "runs",
    ) -> None:
        words = [sys.executable, str(TRAINER), str(seed), how, device, *(["unguarded"] if risk else [])]
        inside = words if first else ["sh", "-c", f"{shlex.join(words)}; exit 1"]
        self.process = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *inside],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._first = first
        self.said = self.process.stdout.readline()

    @property
    def trainer(self) -> int:
        pid = _child_of(self.process.pid)
        return pid if self._first else _child_of(pid)

    def kill_trainer(self) -> None:
        """The rank alone, by the node: where it is the first process, all go with it."""
        os.kill(self.trainer, signal.SIGKILL)

    def kill_all(self) -> None:
        """The container's first process: the kernel kills all others with it."""
        os.kill(_child_of(self.process.pid), signal.SIGKILL)

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.stdout.close()
        self.process.wait(30)


def _child_of(pid: int) -> int:
    words = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(words[0])
