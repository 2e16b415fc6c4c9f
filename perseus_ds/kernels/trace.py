"""What a kernel is, and what an instruction is made of: its kernels in the order of their launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from perseus_ds.errors import ProfileError
from perseus_ds.run_directory.paths import read_record, write_record
from perseus_ds.schedule import Kind

TRACE = "perseus-kernel-trace"


@dataclass(frozen=True, slots=True, order=True)
class KernelClass:
    """Launches that do the same work: the same operator on the same shapes and type.

    ``shapes`` are those of the tensor arguments, in order. ``note`` distinguishes what shapes do not (a
    transposed operand, a scalar that changes the work).
    """

    name: str
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ProfileError("a kernel class has no name")
        if any(size < 0 for shape in self.shapes for size in shape):
            raise ProfileError(f"{self}: a shape has a negative size")

    def __str__(self) -> str:
        shapes = ",".join(shape_text(shape) for shape in self.shapes)
        return " ".join(part for part in (f"{self.name}({shapes})", self.dtype, self.note) if part)


def shape_text(shape: tuple[int, ...]) -> str:
    """Write a shape as ``8x128``; a scalar's is ``1``."""
    return "x".join(map(str, shape)) or "1"


@dataclass(frozen=True, slots=True)
class LaunchSequence:
    """The kernels of one instruction, as they are launched.

    ``kernels`` are positions in the trace's ``classes``; ``duration_s`` is what each launch took in the
    traced iterations on average (empty where unknown). ``times`` is how often an iteration runs the
    whole sequence, ``deviating`` how many traced instructions launched something else.
    """

    stage: int
    kind: Kind
    kernels: tuple[int, ...]
    duration_s: tuple[float, ...] = ()
    times: int = 1
    deviating: int = 0

    def __post_init__(self) -> None:
        if not self.kernels:
            raise ProfileError(
                f"{self}: no kernel was seen in it", hint="trace an iteration that computes something"
            )
        if self.duration_s and len(self.duration_s) != len(self.kernels):
            raise ProfileError(f"{self}: {len(self.duration_s)} durations of {len(self.kernels)} launches")
        if self.times < 1:
            raise ProfileError(f"{self}: run {self.times} times per iteration", hint="expected 1 or more")

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} of stage {self.stage}"

    @property
    def counts(self) -> Counter[int]:
        """How often each class is launched in one run of the sequence."""
        return Counter(self.kernels)


@dataclass(frozen=True, slots=True)
class KernelTrace:
    """The launch sequences of one job, and the classes that they share.

    ``overhead_pct`` is how much longer the traced iterations took than those before them; ``fingerprint``
    names the job, as in its profile. ``unattributed_pct`` is the share of the kernels' time that no operator
    accounts for (custom extensions, captured graphs): it is in no sequence, so what they need is
    underestimated by as much. None without a device.
    """

    classes: tuple[KernelClass, ...]
    sequences: tuple[LaunchSequence, ...]
    overhead_pct: float | None = None
    iterations: int = 1
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    unattributed_pct: float | None = None

    def __post_init__(self) -> None:
        if not self.sequences:
            raise ProfileError("the trace has no kernels", hint="trace at least one training iteration")
        if len(set(self.classes)) != len(self.classes):
            raise ProfileError("the trace names a kernel class twice")
        seen: set[tuple[int, Kind]] = set()
        for sequence in self.sequences:
            if (sequence.stage, sequence.kind) in seen:
                raise ProfileError(f"the trace has two sequences for the {sequence}")
            seen.add((sequence.stage, sequence.kind))
            if not all(0 <= kernel < len(self.classes) for kernel in sequence.kernels):
                raise ProfileError(f"{sequence}: a launch names a class that the trace does not list")

    @property
    def shortfall(self) -> str:
        """A sentence about kernels that no operator accounts for; empty where there are none."""
        if not self.unattributed_pct:
            return ""
        return (
            f"{self.unattributed_pct:.2g} % of the kernels' time belongs to no operator (custom extensions,"
            " captured graphs) and is left out: times and energies of these instructions are too low"
        )

    @property
    def launches(self) -> int:
        """Kernel launches of one iteration, all stages together."""
        return sum(sequence.times * len(sequence.kernels) for sequence in self.sequences)

    def of(self, stage: int, kind: Kind) -> LaunchSequence:
        """Look one sequence up.

        Raises:
            ProfileError: this instruction was not traced.
        """
        for sequence in self.sequences:
            if (sequence.stage, sequence.kind) == (stage, kind):
                return sequence
        raise ProfileError(f"the trace has no {kind.name.lower()} of stage {stage}")


def merged(traces: Sequence[KernelTrace]) -> KernelTrace:
    """Join the traces of a job's ranks; an instruction that several ranks traced is kept once.

    Raises:
        ProfileError: there is nothing to join.
    """
    if not traces:
        raise ProfileError("no rank has traced anything", hint="trace at least one training iteration")
    places: dict[KernelClass, int] = {}
    sequences: dict[tuple[int, Kind], LaunchSequence] = {}
    for trace in traces:
        for one in trace.sequences:
            if (one.stage, one.kind) not in sequences:
                kernels = tuple(places.setdefault(trace.classes[k], len(places)) for k in one.kernels)
                sequences[one.stage, one.kind] = replace(one, kernels=kernels)
    told = [trace.overhead_pct for trace in traces if trace.overhead_pct is not None]
    missing = [trace.unattributed_pct for trace in traces if trace.unattributed_pct is not None]
    return replace(
        traces[0],
        classes=tuple(places),
        sequences=tuple(sequences.values()),
        overhead_pct=max(told, default=None),
        unattributed_pct=max(missing, default=None),
    )


def write_trace(trace: KernelTrace, path: Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    write_record(path, TRACE, KernelTrace, trace)


def read_trace(path: Path) -> KernelTrace:
    """Read a trace.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    return read_record(path, TRACE, KernelTrace, remedy="trace the job again")
