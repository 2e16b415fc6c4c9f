"""Whether `import torch` in this Python will load the plugin: read from metadata, importing nothing."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version

ENABLED_BY_FILE = "PERSEUS_CONFIG"
GROUP, NAME = "torch.backends", "perseus_ds"
SWITCH = "TORCH_DEVICE_BACKEND_AUTOLOAD"
_TORCH_AT_LEAST = (2, 5)


VersionOf = Callable[[str], str | None]
"""What answers which version of a package is there."""


@dataclass(frozen=True, slots=True)
class HookStatus:
    """What decides whether the hook is armed; ``reason`` and ``remedy`` are empty when it is."""

    python: str
    entry_point: str | None
    autoload: str
    torch_version: str | None
    deepspeed_version: str | None
    reason: str
    remedy: str

    @property
    def armed(self) -> bool:
        """Whether training jobs of this Python load the plugin by themselves."""
        return not self.reason

    def as_json(self) -> dict[str, object]:
        """Return plain values."""
        return {"armed": self.armed} | asdict(self)


def hook_status(
    environment: Mapping[str, str] = os.environ, *, version_of: VersionOf | None = None
) -> HookStatus:
    """Look at the installed packages and the environment of this Python."""
    found = next((point.value for point in entry_points(group=GROUP) if point.name == NAME), None)
    version_of = version_of or installed_version
    torch, deepspeed = version_of("torch"), version_of("deepspeed")
    autoload = environment.get(SWITCH, "1")
    trains = bool(deepspeed or version_of("megatron-core") or environment.get(ENABLED_BY_FILE))
    reason, remedy = _obstacle(found, torch, autoload, trains=trains)
    return HookStatus(sys.executable, found, autoload, torch, deepspeed, reason, remedy)


def _obstacle(entry_point: str | None, torch: str | None, autoload: str, *, trains: bool) -> tuple[str, str]:
    if entry_point is None:
        return (
            f"no entry point {NAME} in group {GROUP} is installed",
            f"install the package into this Python: {sys.executable} -m pip install perseus_ds",
        )
    if torch is None:
        return "torch is not installed", "install torch 2.5 or newer"
    if _release(torch) < _TORCH_AT_LEAST:
        return (
            f"torch {torch} has no autoload of entry points",
            "upgrade to torch 2.5, or call perseus_ds.attach(engine) in the script",
        )
    if autoload == "0":
        return f"{SWITCH} is 0: torch loads no entry point", f"unset {SWITCH}"
    if not trains:
        return (
            "neither deepspeed nor megatron-core is installed",
            f"install the one that trains; for torch's own pipelining set {ENABLED_BY_FILE}",
        )
    return "", ""


def installed_version(package: str) -> str | None:
    """The version of a package in this Python; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text.split("+", maxsplit=1)[0])[:2])
