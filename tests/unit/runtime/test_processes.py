"""Processes of ours that are to end, whatever they are about."""

import subprocess
import sys

from perseus_ds.runtime.plans import end_in_time

DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
)


def test_one_that_hears_nothing_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        end_in_time(process, patience_s=0.05)
        assert process.wait(60.0) != 0


class Stuck(subprocess.Popen[bytes]):
    """A process that the kernel keeps, as a hung file system does: no signal ends it in time."""

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is not None, "waited for without a limit"
        raise subprocess.TimeoutExpired("stuck", timeout)


def test_one_that_nothing_ends_is_left_to_the_operating_system() -> None:
    process = Stuck([sys.executable, "-c", ""])
    end_in_time(process, patience_s=0.01)
    assert subprocess.Popen.wait(process, 60.0) is not None
