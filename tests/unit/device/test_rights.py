"""Who may set clocks: whoever has CAP_SYS_ADMIN on the node, whatever its user is called."""

import os
import subprocess
import sys

import pytest

from perseus_ds.device.gpu import missing_right

_PR_CAPBSET_DROP, _CAP_SYS_ADMIN = 24, 21  # linux/prctl.h, linux/capability.h
_WITHOUT = (
    f"import ctypes, os, sys; ctypes.CDLL(None).prctl({_PR_CAPBSET_DROP}, {_CAP_SYS_ADMIN}, 0, 0, 0);"
    "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
)
_ASK = "from perseus_ds.device.gpu import missing_right; print(missing_right())"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to drop")
def test_root_without_the_capability_may_not() -> None:
    """Like in most containers, the driver asks for the capability and not for the user."""
    told = subprocess.run(
        [sys.executable, "-c", _WITHOUT, _ASK], capture_output=True, text=True, check=True, timeout=60
    )
    assert "CAP_SYS_ADMIN" in told.stdout


@pytest.mark.skipif(missing_right() is not None, reason="this process lacks the right itself")
def test_with_the_capability_one_may() -> None:
    told = subprocess.run(
        [sys.executable, "-c", _ASK], capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout == "None\n"
