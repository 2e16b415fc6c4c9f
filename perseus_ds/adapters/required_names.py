"""Names of a framework that no one promised us: each with its use, checked before an engine is served."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perseus_ds.errors import UnsupportedEngineError


@dataclass(frozen=True, slots=True)
class RequiredName:
    """One name, a member's of a member with a dot between, and what for."""

    name: str
    use: str


@dataclass(frozen=True, slots=True)
class Release:
    """The release of a framework that is imported ("DeepSpeed 0.19.8"), and those tested."""

    name: str
    tested: Sequence[str]

    def check(self, holder: object, required: Iterable[RequiredName], *, where: str) -> None:
        """Return if a holder, which messages call ``where``, has all of some names.

        Raises:
            UnsupportedEngineError: naming what is missing, the release found and those tested.
        """
        for one in required:
            if not _has(holder, one.name.split(".")):
                raise self.unsupported(f"{where}.{one.name}, used for {one.use}, is not there")

    def unsupported(self, what: str) -> UnsupportedEngineError:
        """Return what is not as in the releases tested."""
        return UnsupportedEngineError(f"{self.name}: {what}", hint=f"tested: {', '.join(self.tested)}")


def _has(holder: object, path: Iterable[str]) -> bool:
    for name in path:
        if not hasattr(holder, name):
            return False
        holder = getattr(holder, name)
    return True
