"""The keys of the ``perseus`` block, each with its range and its default.

`docs/reference/block.md` states what each means, from `scripts/docs/meanings.toml`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

AUTOMATIC = "automatic"
"""Our word for "auto": HF Trainer and Accelerate end a job whose DeepSpeed JSON holds that one.

Source: accelerate/utils/dataclasses.py @ 1.15.0, ``DeepSpeedPlugin.fill_match``.
"""

Mode = Literal["automatic", "profile", "run", "observe", "off"]
DeviceSetting = Literal["automatic", "nvml", "guardd", "amdsmi", "simulated", "null"]
Policy = Literal["no_slowdown", "max_slowdown", "min_energy", "deadline", "power_cap"]
OnError = Literal["disable", "raise"]
Switch = Literal["automatic", "never"]


def _expand(path: str) -> str:
    """Expand the home directory at the beginning of a path.

    Raises:
        ValueError: no file can have that name, nobody would see it, or it was meant for a shell.
    """
    if not path.strip() or not path.isprintable():
        raise ValueError("the path of a file or folder")
    if variable := re.search(r"\$([A-Za-z_]\w*)", path):
        raise ValueError(f"a path; an environment variable is written ${{oc.env:{variable[1]}}}")
    expanded = os.path.expanduser(path)  # noqa: PTH111  # a Path would lose "./"
    if expanded.startswith("~"):
        raise ValueError("a home directory that exists")
    return expanded


Settling = Annotated[float, Field(ge=0.0, le=3600.0)]
Percent = Annotated[float, Field(gt=0.0, le=1000.0)]
Seconds = Annotated[float, Field(gt=0.0, le=1e6)]
Watts = Annotated[float, Field(gt=0.0, le=1e9)]
PerSecond = Annotated[float, Field(ge=0.0, le=1e6)]
Text = Annotated[str, Field(min_length=1, max_length=4096)]
Folder = Annotated[Text, AfterValidator(_expand)]


class _Section:
    """A part of the block: unknown keys are refused."""

    __slots__ = ()
    __pydantic_config__: ClassVar = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Objective(_Section):
    """The point of the frontier to run at while no replica straggles."""

    policy: Policy = "no_slowdown"
    max_slowdown_pct: Percent | None = None
    deadline_s: Seconds | None = None
    power_cap_w: Watts | None = None
    reserve_pct: Annotated[float, Field(ge=0.0, le=20.0)] | Literal["automatic"] = "automatic"
    split: Switch = "automatic"
    waits: Switch = "never"
    changes_per_s: PerSecond | None = None
    node_changes_per_s: PerSecond | None = None
    timelines: Folder | None = None

    @property
    def allows_dates(self) -> bool:
        """Tell if clocks may change within an iteration that is seen as a whole: it may last longer."""
        return self.policy == "max_slowdown" and bool(self.max_slowdown_pct) and self.changes_per_s != 0.0


@dataclass(frozen=True, slots=True)
class ProfileSettings(_Section):
    """The sweep over clocks inside training."""

    min_window_s: Annotated[float, Field(gt=0.0, le=86_400.0)] = 5.0
    max_clocks: Annotated[int, Field(ge=2, le=1000)] | None = None
    max_slower_pct: Percent = 8.0
    reuse: bool = True
    warmup_iterations: Annotated[int, Field(ge=1, le=10_000)] = 3
    settle_s: Settling = 60.0


@dataclass(frozen=True, slots=True)
class AuditSettings(_Section):
    """Iterations at default clocks from time to time, so that the saving is measured, not promised."""

    every_iterations: Annotated[int, Field(ge=0, le=1_000_000_000)] = 500
    iterations: Annotated[int, Field(ge=1, le=1000)] = 3
    settle_s: Settling = 60.0


@dataclass(frozen=True, slots=True)
class StragglerSettings(_Section):
    """Answers to stragglers, and the time that they may cost over the last 1 000 iterations."""

    enabled: bool = True
    max_cost_pct: Annotated[float, Field(ge=0.0, le=100.0)] = 0.2
    loads: Text | None = None
    pacing: Switch = "automatic"


@dataclass(frozen=True, slots=True)
class MetricsSettings(_Section):
    """Numbers that every rank leaves for monitoring."""

    enabled: bool = False
    folder: Folder | None = None
    port: Annotated[int, Field(ge=1, le=65_535)] | None = None


@dataclass(frozen=True, slots=True)
class PerseusConfig(_Section):
    """The whole block; ``simulated`` is read by the simulated device alone."""

    enabled: bool = False
    mode: Mode = "automatic"
    run_dir: Folder = "perseus_runs/default"
    device: DeviceSetting = "automatic"
    on_error: OnError = "disable"
    allow_unguarded_container: bool = False
    restore_clock_mhz: Annotated[int, Field(ge=1, le=100_000)] | None = None
    trace_kernels: Annotated[int, Field(ge=0, le=100)] = 0
    objective: Objective = field(default_factory=Objective)
    profile: ProfileSettings = field(default_factory=ProfileSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    straggler: StragglerSettings = field(default_factory=StragglerSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    simulated: dict[str, object] = field(default_factory=dict)
