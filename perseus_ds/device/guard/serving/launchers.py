"""Who started a rank and would have to end it: ranks outlive a launcher that was killed.

Only launchers that are known to stay until their ranks have ended are watched. A shell, ssh, srun's or
mpirun's daemon may go before a job that is meant to run on, so their end proves nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_MODULES = frozenset(
    {
        "deepspeed.launcher.launch",
        "deepspeed.launcher.runner",
        "torch.distributed.run",
        "torch.distributed.launch",
        "perseus_ds.cli",
    }
)
_PROGRAMS = frozenset({"deepspeed", "deepspeed.pt", "ds", "torchrun", "perseus-ds"})
_MOST = 8  # one above the other


@dataclass(frozen=True, slots=True)
class Launcher:
    """A living launcher; `fileno` becomes readable when it ends. Its holder closes it."""

    name: str
    pid: int
    descriptor: int

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self.descriptor

    def __str__(self) -> str:
        return f"{self.name}, process {self.pid}"


def launchers_above(pid: int) -> tuple[Launcher, ...]:
    """Open the launchers of a process, from its parent up to the first process that is not a launcher."""
    return tuple(_above(pid))


def launcher_name(words: Sequence[str]) -> str | None:
    """Recognise a launcher by its command line; ``None``: not a launcher."""
    program, *arguments = words or [""]
    if not Path(program).name.startswith("python"):
        return _program(program)
    for index, word in enumerate(arguments):
        if word == "-m":
            return next((module for module in arguments[index + 1 : index + 2] if module in _MODULES), None)
        if not word.startswith("-"):
            return _program(word)
    return None


def _program(word: str) -> str | None:
    name = Path(word).name
    return name if name in _PROGRAMS else None


def _above(pid: int) -> Iterator[Launcher]:
    for _ in range(_MOST):
        parent = _parent_of(pid)
        launcher = None if parent is None else _opened(parent, child=pid)
        if launcher is None:
            return
        yield launcher
        pid = launcher.pid


def _opened(pid: int, *, child: int) -> Launcher | None:
    """Open a process first, then see that it is a launcher and still the parent: numbers are used again."""
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None
    name = launcher_name(_command_line(pid))
    if name is None or _parent_of(child) != pid:
        os.close(descriptor)
        return None
    return Launcher(name, pid, descriptor)


def _command_line(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def _parent_of(pid: int) -> int | None:
    """Read the parent's number; ``None`` where the parent is not visible (in another container, for one)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[1]) or None
    return None
