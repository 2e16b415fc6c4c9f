"""What a user can set in the ``perseus`` block, with every default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Interval, Len

Mode = Literal["auto", "profile", "run", "observe", "off"]
DeviceSetting = Literal["auto", "nvml", "guardd", "amdsmi", "simulated", "null"]
Policy = Literal["no_slowdown", "max_slowdown", "min_energy", "deadline", "power_cap"]
OnError = Literal["disable", "raise"]
Switch = Literal["auto", "never"]

Settling = Annotated[float, Interval(ge=0.0, le=3600.0)]
Percent = Annotated[float, Interval(gt=0.0, le=1000.0)]
Seconds = Annotated[float, Interval(gt=0.0, le=1e6)]
Watts = Annotated[float, Interval(gt=0.0, le=1e9)]
Folder = Annotated[str, Len(1, 4096)]


@dataclass(frozen=True, slots=True)
class Objective:
    """Which point of the frontier to run at when nobody straggles.

    ``reserve_pct`` keeps that much of every stretched computation's duration in reserve. Durations vary, and
    a plan that fills all slack to the last bit would lose speed to the variation. "auto" keeps what the
    profiled variation asks for. ``split`` lets a computation change its clock while it runs, ``waits`` lowers
    the clock in long waits. ``timelines`` names a file of further ways to run each instruction
    (`perseus-ds kernels plan --timelines`). ``changes_per_s`` and ``node_changes_per_s`` are how often the
    clock of a GPU may change, and those of a node's GPUs together.
    """

    policy: Policy = "no_slowdown"
    max_slowdown_pct: Percent | None = None
    deadline_s: Seconds | None = None
    power_cap_w: Watts | None = None
    reserve_pct: Annotated[float, Interval(ge=0.0, le=20.0)] | Literal["auto"] = "auto"
    split: Switch = "auto"
    waits: Switch = "never"
    changes_per_s: Annotated[float, Interval(ge=0.0, le=1e6)] | None = None
    node_changes_per_s: Annotated[float, Interval(ge=0.0, le=1e6)] | None = None
    timelines: Folder | None = None


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """How the sweep over clocks is done inside training.

    ``warmup_iterations`` are left alone first (lazy connections, compilation, allocator); ``min_window_s`` is
    the least time measured at one clock, ``max_clocks`` the most clocks tried, of five that
    lie between the highest and half of it. While the sweep lasts, training is slowed by ``max_slower_pct`` at
    most: iterations at default clocks lie between. ``settle_s`` is how long a cold GPU warms up before the
    first of them is measured, at most half as long as the sweep takes.
    """

    min_window_s: Annotated[float, Interval(gt=0.0, le=86_400.0)] = 5.0
    max_clocks: Annotated[int, Interval(ge=2, le=1000)] | None = None
    max_slower_pct: Annotated[float, Interval(gt=0.0, le=1000.0)] = 8.0
    reuse: bool = True
    warmup_iterations: Annotated[int, Interval(ge=1, le=10_000)] = 3
    settle_s: Settling = 60.0


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """How often a few iterations run at default clocks, so that the saving is measured, not promised.

    ``settle_s`` is how long a GPU is given after a change of sides. For that long it has the other side's
    temperature, and leakage follows the temperature. It takes at most a fifth of ``every_iterations``.
    """

    every_iterations: Annotated[int, Interval(ge=0, le=1_000_000_000)] = 500
    iterations: Annotated[int, Interval(ge=1, le=1000)] = 3
    settle_s: Settling = 60.0


@dataclass(frozen=True, slots=True)
class StragglerSettings:
    """Whether to answer stragglers, and what time answers may cost over the last 1 000 iterations.

    ``set_load`` names a function ("module.function") that gives the loads of an iteration's microbatches
    before it begins; it is waited for ``load_limit_s`` at most. ``read_ahead`` reads these microbatches from
    the data iterator beforehand and counts them. ``pacing`` "auto" paces replicas to the longest by the loads
    of their microbatches, where these are known before an iteration and explain its duration.
    """

    enabled: bool = True
    max_cost_pct: Annotated[float, Interval(ge=0.0, le=100.0)] = 0.2
    set_load: Folder | None = None
    load_limit_s: Annotated[float, Interval(gt=0.0, le=60.0)] = 0.1
    read_ahead: bool = False
    pacing: Literal["auto", "never"] = "auto"


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Whether every rank leaves its numbers for monitoring, and for whom.

    ``folder`` is where the files of node_exporter's textfile collector go; None: ``metrics`` in the run
    directory. ``port`` is that of an endpoint for Prometheus on
    the node's first rank; the next rank's is one higher.
    """

    enabled: bool = False
    folder: Folder | None = None
    port: Annotated[int, Interval(ge=1, le=65_535)] | None = None


@dataclass(frozen=True, slots=True)
class PerseusConfig:
    """The whole block; ``simulated`` is read by the simulated device alone.

    ``allow_unguarded_container`` sets clocks also where nothing would put them back, should the container be
    killed. ``restore_clock_mhz`` is put back at the end in place of the driver's own clocks.
    ``trace_kernels`` iterations run under PyTorch's profiler, at default clocks.
    """

    enabled: bool = False
    mode: Mode = "auto"
    run_dir: Folder = "perseus_runs/default"
    device: DeviceSetting = "auto"
    on_error: OnError = "disable"
    allow_unguarded_container: bool = False
    restore_clock_mhz: Annotated[int, Interval(ge=1, le=100_000)] | None = None
    trace_kernels: Annotated[int, Interval(ge=0, le=100)] = 0
    objective: Objective = field(default_factory=Objective)
    profile: ProfileSettings = field(default_factory=ProfileSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    straggler: StragglerSettings = field(default_factory=StragglerSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    simulated: dict[str, object] = field(default_factory=dict)
