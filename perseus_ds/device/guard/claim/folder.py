"""Where journals and ownership locks lie: one folder per machine or user, which nobody else can write."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

from perseus_ds.errors import DevicePermissionError, PerseusError
from perseus_ds.files import check_folder, reason_of

VARIABLE = "PERSEUS_GUARD_DIR"
_HINT = f"set {VARIABLE} to a folder of your own"


def guard_dir() -> Path:
    """The folder, made if missing: ``PERSEUS_GUARD_DIR``, or one per machine (root) or user.

    Raises:
        DevicePermissionError: it cannot be made, or others may write to it.
    """
    folder = place()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_folder(folder, frozenset({os.geteuid()}))
    except (OSError, PerseusError) as error:
        raise DevicePermissionError(
            f"cannot keep a journal of clocks in {folder}: it {reason_of(error)}", hint=_HINT
        ) from error
    return folder


def place() -> Path:
    """Where the folder is or would be.

    Raises:
        DevicePermissionError: it is the root of all, which is nobody's own.
    """
    given = os.environ.get(VARIABLE)
    if given:
        folder = Path(_absolute(given))
        if not folder.name:
            raise DevicePermissionError(f"{VARIABLE}={given} is no folder for journals", hint=_HINT)
        return folder
    if os.geteuid() == 0:
        return Path("/run/perseus_ds")  # gone after a reboot, as locks are
    return Path(tempfile.gettempdir()) / f"perseus_ds-{os.geteuid()}"


@cache
def _absolute(given: str) -> str:
    """Once for all: the process may change its working directory, and its guard has another."""
    return os.path.abspath(given)  # noqa: PTH100 - links stay as they are
