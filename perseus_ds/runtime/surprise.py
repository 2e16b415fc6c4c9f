"""What nobody foresaw, in the form of what we refuse: one line, and where to take it."""

from __future__ import annotations

from perseus_ds.errors import PerseusError


def as_perseus_error(error: Exception) -> PerseusError:
    """Return an error of ours as it is, and any other as one."""
    if isinstance(error, PerseusError):
        return error
    return PerseusError(f"an unexpected {type(error).__name__}: {error}", hint="please report it")
