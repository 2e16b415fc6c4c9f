"""Records of a profile (time and energy of every computation at every clock) and of a rank's window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from perseus_ds.device.clock_change import Calibration
from perseus_ds.errors import IncompleteProfileError, ProfileError
from perseus_ds.files import MOST
from perseus_ds.profile.loads import LoadFit, NotNegative
from perseus_ds.schedule import Instruction, Kind, Load

Computation = tuple[int, Kind]
MOST_STAGES = 65_536
_MOST_CLOCKS = 4096  # of one computation: no grid has as many
Mhz = Annotated[int, Field(ge=1, le=100_000)]
Positive = Annotated[float, Field(gt=0.0, le=MOST)]


@dataclass(frozen=True, slots=True)
class Point:
    """An instruction at one clock: means over a window, standard errors, number of samples.

    ``time_sd_s`` is by how much single executions vary (standard deviation); None where nobody looked.
    ``achieved_mhz`` is the clock that was read back, ``event_reasons`` the NVML bits seen meanwhile,
    ``temperature_c`` how warm the GPU was on average; None where nobody read it.
    """

    clock_mhz: Mhz
    time_s: Positive
    energy_j: Positive
    time_se_s: NotNegative = 0.0
    energy_se_j: NotNegative = 0.0
    samples: Annotated[int, Field(ge=1)] = 1
    achieved_mhz: Mhz | None = None
    event_reasons: Annotated[int, Field(ge=0)] = 0
    time_sd_s: NotNegative | None = None
    temperature_c: Annotated[float, Field(ge=0.0, le=200.0)] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CurveErrors:
    """Errors of one computation's points, highest clock first, with their correlation.

    Factors of the covariances of times and of energies, as shares. A factor times standard normal numbers is
    by what share all points of a curve may be off at once.

    Shape: both [points, points].
    """

    time: NDArray[np.float64]
    energy: NDArray[np.float64]

    def shares(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Standard errors of times and of energies, as shares of them."""
        time, energy = (np.sqrt((factor**2).sum(axis=1)) for factor in (self.time, self.energy))
        return time, energy


@dataclass(frozen=True, slots=True)
class Profile:
    """All points of one job, with what identifies the job.

    ``fixed_s`` holds the mean durations of what no clock changes (transfers, loading, reduction, step), at
    the highest clock. ``blocking_w`` is the power of a waiting GPU by clock. ``fingerprint`` names model,
    partition, shapes, GPU and driver: a profile serves only the job that it was measured in. ``calibration``
    is how its GPUs change clocks.

    ``size_variation`` is by what share the sizes of an iteration's microbatches vary (standard deviation).
    ``leakage`` is how many watts more a GPU takes for every watt that it took on average before, since it is
    warmer. ``leakage_se`` is its standard error. Energies are as at the temperature of default clocks.
    ``loads`` state how durations follow the loads of microbatches, where these differ and are counted.
    ``errors`` are of the points that were drawn to curves (`curves.smooth`); files hold none.
    ``grid_mhz`` are clocks that the GPU has and that were not measured: curves predict what computations take
    there.
    """

    points: Mapping[Computation, tuple[Point, ...]]
    blocking_power_w: float | None = None
    blocking_w: Mapping[int, float] = field(default_factory=dict)
    fixed_s: Mapping[Computation, float] = field(default_factory=dict)
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    window_s: float | None = None
    calibration: Calibration | None = None
    size_variation: float = 0.0
    leakage: float = 0.0
    leakage_se: float = 0.0
    loads: Mapping[Computation, LoadFit] = field(default_factory=dict)
    errors: Mapping[Computation, CurveErrors] = field(default_factory=dict)
    grid_mhz: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for (stage, kind), points in self.points.items():
            if len(points) > _MOST_CLOCKS:
                raise ProfileError(
                    f"stage {stage} {kind.words} has {len(points)} points, {_MOST_CLOCKS} are allowed"
                )
            if len({point.clock_mhz for point in points}) < len(points):
                raise ProfileError(
                    f"stage {stage} {kind.words} has a clock twice", hint="one point for each clock"
                )

    @property
    def stages(self) -> int:
        """Number of stages: one more than the highest that was measured."""
        return 1 + max((stage for stage, _ in self.points), default=-1)

    @property
    def clocks_mhz(self) -> tuple[int, ...]:
        """Every clock that was tried anywhere, highest first."""
        return tuple(sorted({p.clock_mhz for points in self.points.values() for p in points}, reverse=True))

    def of(self, stage: int, kind: Kind) -> tuple[Point, ...]:
        """Return the points of one computation, highest clock first.

        Raises:
            IncompleteProfileError: nothing was measured for it.
        """
        points = self.points.get((stage, kind), ())
        if not points:
            raise IncompleteProfileError(
                f"the profile has no {kind.words} of stage {stage}",
                hint="every stage needs all that the schedule runs there at one clock or more",
            )
        return tuple(sorted(points, key=lambda point: -point.clock_mhz))

    def load_terms(
        self, keys: Sequence[Computation], *, counted_at: int | None = None
    ) -> NDArray[np.float64]:
        """Return what 1, a token and a square add to how many times its mean duration a computation takes.

        ``counted_at`` is the model stage whose inputs were counted (None: its own). Stages may count in units
        of their own, tokens here and elements there, so a load is held against the mean that this stage saw.

        Shape: [keys, 3]; (1, 0, 0) for what was not fitted.
        """
        counted = next((one.mean for (at, _), one in self.loads.items() if at == counted_at), None)
        return np.array(
            [(1.0, 0.0, 0.0) if (fit := self.loads.get(key)) is None else fit.terms(counted) for key in keys]
        )

    def variation(self) -> Mapping[Computation, float] | None:
        """Return the relative variation of each computation; None where points do not state it of all.

        All clocks together, and the whole of it: also what is alike in all computations of an iteration.
        """
        shares: dict[Computation, list[float]] = {}
        for key, points in self.points.items():
            for point in points:
                if point.time_sd_s is None:
                    return None
                shares.setdefault(key, []).append(point.time_sd_s / point.time_s)
        return {key: float(np.sqrt(np.mean(np.square(own)))) for key, own in shares.items()}


# A window of one rank at one clock: its instructions and the steps of the energy counter, which is read as a
# continuous quantity.


class CounterTrace:
    """The moments at which a counter was seen to change, with the value it changed to.

    A data-centre GPU's counter moves about every 100 ms: between two changes energy is interpolated,
    and no single instruction is ever read off it.

    Units: seconds on the device's time base; joules.
    Source: arXiv 2312.02741 (update periods); shared by every estimate of energy here.
    """

    def __init__(self, time_s: Sequence[float], energy_j: Sequence[float]) -> None:
        self.time_s: NDArray[np.float64] = np.asarray(time_s, np.float64)
        self.energy_j: NDArray[np.float64] = np.asarray(energy_j, np.float64)

    def __len__(self) -> int:
        return len(self.time_s)

    def covers(self, start_s: float, end_s: float) -> bool:
        """Return whether the counter moved before ``start_s`` and after ``end_s``."""
        return len(self.time_s) > 1 and bool(self.time_s[0] <= start_s and end_s <= self.time_s[-1])

    def energy_between(self, start_s: float, end_s: float) -> float:
        """Joules used from ``start_s`` to ``end_s``.

        Raises:
            IncompleteProfileError: the counter was not watched over all of it.
        """
        if not self.covers(start_s, end_s):
            raise IncompleteProfileError(
                f"the energy counter moved {len(self)} times and not on both sides of the "
                f"{end_s - start_s:.3g} s measured",
                hint="measure for longer than the counter's period",
            )
        start_j, end_j = np.interp([start_s, end_s], self.time_s, self.energy_j)
        return float(end_j - start_j)


@dataclass(frozen=True, slots=True)
class Interval:
    """An instruction from its release to its end, on the device's time base.

    ``load`` is how much it worked on, None where nobody counts it. An interval that ``waits`` contains a wait
    for others, and its duration shows nothing of a clock.
    """

    instruction: Instruction
    start_s: float
    end_s: float
    load: Load | None = None
    waits: bool = False

    @property
    def kind(self) -> Kind:
        """Kind of the instruction."""
        return self.instruction.kind

    @property
    def computation(self) -> tuple[int, Kind]:
        """Key that it is measured under: all microbatches of a model stage alike."""
        return self.instruction.stage, self.instruction.kind

    @property
    def duration_s(self) -> float:
        """Time from release to end."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A few whole iterations at one clock; ``achieved_mhz`` and ``event_reasons`` were read meanwhile.

    ``temperature_c`` is the mean of what was read, None where nothing was.

    ``outside`` are the stretches (start, end) between iterations, in which the host did something else.
    ``loads`` states for every model stage to which load durations must be brought, where microbatches differ
    and somebody counts theirs.
    """

    clock_mhz: int
    start_s: float
    end_s: float
    intervals: tuple[Interval, ...]
    counter: CounterTrace
    achieved_mhz: int | None = None
    event_reasons: int = 0
    temperature_c: float | None = None
    outside: tuple[tuple[float, float], ...] = ()
    loads: Mapping[int, Load] = field(default_factory=dict)
