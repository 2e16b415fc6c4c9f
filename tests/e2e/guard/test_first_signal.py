"""A guard that is asked to end as soon as it can hear that ends, though its parent lives and says nothing."""

import signal
import time
from pathlib import Path

import pytest

from perseus_ds.guard.spawn import spawn

pytestmark = pytest.mark.e2e

_SOON_S = 20.0  # one that heard nothing waits longer than that for its parent's first words


def catches(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler of its own for a signal."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_that_does_not_end_a_guard_by_itself_is_heard(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSEUS_GUARD_DIR", str(tmp_path / "guard"))
    sock, process = spawn()
    with sock, process:
        try:
            until_s = time.monotonic() + 60.0
            while not catches(process.pid, number):
                assert time.monotonic() < until_s
            process.send_signal(number)
            assert process.wait(timeout=_SOON_S) == 0
        finally:
            process.kill()
