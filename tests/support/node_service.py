"""The node's service, guardd, as a process beside a job."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from fake_nvml import FakeNvml

PROGRAM = Path(__file__).parents[1] / "e2e" / "guard" / "service.py"


class Service:
    """guardd of this node, as a process."""

    def __init__(self, node: FakeNvml, path: Path) -> None:
        self._words = [sys.executable, str(PROGRAM), str(path), "0", "gpus=*"]
        self._environment = node.environment()
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._words, env=self._environment, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
