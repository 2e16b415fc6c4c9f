"""Say of which file an error speaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perseus_ds.errors import ProfileError


@contextmanager
def names_profile(path: Path) -> Iterator[None]:
    """Put a profile's path before what is wrong with it, where that was found after it had been read."""
    try:
        yield
    except ProfileError as error:
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from error
