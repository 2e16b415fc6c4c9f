"""Traces: the kernels of each instruction in the order of their launch, cut from a profiler's events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from perseus_ds.errors import ProfileError
from perseus_ds.run_directory.paths import RecordFormat
from perseus_ds.schedule import Instruction, Kind


@dataclass(frozen=True, slots=True, order=True)
class KernelClass:
    """Launches that do the same work: the same operator on the same shapes and type.

    ``shapes`` are those of the tensor arguments, in order. ``note`` distinguishes what shapes do not (a
    transposed operand, a scalar that changes the work).
    """

    name: Annotated[str, Field(min_length=1)]
    shapes: tuple[tuple[Annotated[int, Field(ge=0)], ...], ...] = ()
    dtype: str = ""
    note: str = ""

    def __str__(self) -> str:
        shapes = ",".join("x".join(map(str, shape)) or "1" for shape in self.shapes)
        return " ".join(part for part in (f"{self.name}({shapes})", self.dtype, self.note) if part)


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
    times: Annotated[int, Field(ge=1)] = 1
    deviating: int = 0

    def __post_init__(self) -> None:
        if not self.kernels:
            raise ProfileError(
                f"{self}: no kernel was seen in it", hint="trace an iteration that computes something"
            )
        if self.duration_s and len(self.duration_s) != len(self.kernels):
            raise ProfileError(f"{self}: {len(self.duration_s)} durations of {len(self.kernels)} launches")

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} of stage {self.stage}"

    @property
    def counts(self) -> Counter[int]:
        """Number of launches of each class in one run of the sequence."""
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


def merge(traces: Sequence[KernelTrace]) -> KernelTrace:
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

    def most(values: Iterable[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    return replace(
        traces[0],
        classes=tuple(places),
        sequences=tuple(sequences.values()),
        overhead_pct=most(trace.overhead_pct for trace in traces),
        unattributed_pct=most(trace.unattributed_pct for trace in traces),
    )


KERNEL_TRACES = RecordFormat("perseus-kernel-trace", KernelTrace, "trace the job again")
"""Files of traces, of a rank or of a job."""

# A profiler's events cut into instructions: which kernels each launches, with shapes, in order. Pure.
#
# An event is a span of PyTorch's Chrome trace: ``name``, ``cat``, ``ts`` and ``dur`` in microseconds,
# ``tid``, ``args``. An instruction is a span named ``perseus.2F0``. On CUDA a launch is an operator that
# started kernels, and lasts as long as they do. Without CUDA it is an operator that computes and contains no
# other.

MARK = "perseus."
TENSOR, ABSENT = "T", "-"
_DTYPES = MappingProxyType(
    {
        "float": "float32",
        "double": "float64",
        "c10::Half": "float16",
        "c10::BFloat16": "bfloat16",
        "long int": "int64",
        "long": "int64",
        "int": "int32",
        "bool": "bool",
        "unsigned char": "uint8",
        "signed char": "int8",
        "short": "int16",
        "c10::Float8_e4m3fn": "float8_e4m3fn",
        "c10::Float8_e5m2": "float8_e5m2",
    }
)
# Operators that only make room or look at what is there; copies and fills count where nothing contains them.
_NO_WORK = frozenset(
    [
        *("as_strided", "broadcast_to", "flatten", "movedim", "reshape_as", "split_with_sizes"),
        *("tensor_split", "unflatten", "view_as", "view", "_unsafe_view", "reshape"),
        *("_reshape_alias", "t", "transpose", "permute", "expand", "expand_as", "unsqueeze"),
        *("squeeze", "slice", "select", "narrow", "split", "chunk", "unbind", "detach", "detach_"),
        *("alias", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
        *("resize_", "resize_as_", "set_", "result_type", "resolve_conj", "resolve_neg", "item"),
        *("_local_scalar_dense", "is_nonzero", "lift_fresh", "requires_grad_", "retain_grad"),
        *("output_nr", "version", "unfold", "real", "imag"),
    ]
)
_FILLS = frozenset(
    [
        *("copy_", "fill_", "zero_", "clone", "to", "_to_copy", "contiguous", "zeros", "zeros_like"),
        *("ones", "ones_like"),
    ]
)

_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})

Span = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch: its class, and how long its kernels took."""

    kernel: KernelClass
    duration_s: float


def split_trace_by_instruction(events: Iterable[Span]) -> dict[Instruction, tuple[Launch, ...]]:
    """Give every marked instruction its launches.

    Raises:
        ProfileError: no mark is among the events.
    """
    spans = [event for event in events if event.get("ph") == "X"]
    marks = [span for span in spans if _is_mark(span)]
    if not marks:
        raise ProfileError("the profiler noted no instruction", hint="trace a training iteration")
    operators = [span for span in spans if span.get("cat") == "cpu_op"]
    kernels = [span for span in spans if span.get("cat") in _DEVICE]
    launched = _with_kernels(operators, kernels) if kernels else _that_compute(operators)
    launched.sort(key=lambda one: one[0])
    found: dict[Instruction, tuple[Launch, ...]] = {}
    for mark in marks:
        start, end = _times(mark)
        instruction = Instruction.parse(str(mark["name"]).removeprefix(MARK))
        found[instruction] = tuple(launch for at, launch in launched if start <= at < end)
    return found


def unattributed_pct(events: Iterable[Span]) -> float | None:
    """Return the share of the kernels' time within instructions that no operator accounts for.

    None without kernels. Custom extensions and captured graphs launch kernels without an ``External id``, or
    with one of no operator. A kernel belongs to an instruction if the host launched it there, or if the trace
    lacks its launch.
    """
    spans = [event for event in events if event.get("ph") == "X"]
    marks = [_times(span) for span in spans if _is_mark(span)]
    operators = {_args(span).get("External id") for span in spans if span.get("cat") == "cpu_op"}
    launched = {
        _args(span).get("correlation"): _times(span)[0] for span in spans if span.get("cat") in _LAUNCHES
    }
    total = missing = 0.0
    for span in spans:
        if span.get("cat") not in _DEVICE:
            continue
        args, (start, end) = _args(span), _times(span)
        at = launched.get(args["correlation"]) if "correlation" in args else None
        if at is None or any(first <= at < last for first, last in marks):
            total += end - start
            if args.get("External id") is None or args["External id"] not in operators:
                missing += end - start
    return 100.0 * missing / total if total else None


def trace_of(
    iterations: Sequence[Mapping[Instruction, Sequence[Launch]]],
    *,
    unattributed_pct: float | None = None,
    overhead_pct: float | None = None,
    fingerprint: Mapping[str, str] | None = None,
) -> KernelTrace:
    """Join traced iterations: for each (stage, kind) the sequence that most of its instructions launched.

    Raises:
        ProfileError: an instruction launched nothing, or nothing was traced.
    """
    runs: dict[tuple[int, Kind], list[Sequence[Launch]]] = defaultdict(list)
    for iteration in iterations:
        for instruction, launches in iteration.items():
            runs[instruction.stage, instruction.kind].append(launches)
    classes: dict[KernelClass, int] = {}
    sequences = tuple(
        _usual(stage, kind, every, classes, len(iterations)) for (stage, kind), every in runs.items()
    )
    return KernelTrace(
        tuple(classes), sequences, overhead_pct, len(iterations), dict(fingerprint or {}), unattributed_pct
    )


def _usual(
    stage: int, kind: Kind, every: list[Sequence[Launch]], classes: dict[KernelClass, int], iterations: int
) -> LaunchSequence:
    shapes = [tuple(launch.kernel for launch in launches) for launches in every]
    usual, times = Counter(shapes).most_common(1)[0]
    like = [launches for launches, shape in zip(every, shapes, strict=True) if shape == usual]
    return LaunchSequence(
        stage,
        kind,
        tuple(classes.setdefault(kernel, len(classes)) for kernel in usual),
        tuple(fmean(launches[place].duration_s for launches in like) for place in range(len(usual))),
        times=max(1, round(len(every) / iterations)),
        deviating=len(every) - times,
    )


def _that_compute(operators: Iterable[Span]) -> list[tuple[float, Launch]]:
    """The innermost operators that do more than look, copy or fill, and copies on their own."""
    by_thread: dict[object, list[Span]] = defaultdict(list)
    for span in operators:
        by_thread[span.get("tid")].append(span)
    every: list[tuple[float, Launch]] = []
    for spans in by_thread.values():
        found: list[tuple[float, Launch]] = []  # of those that begin later, the next one last
        for span in sorted(spans, key=lambda one: (_times(one)[0], -_times(one)[1]), reverse=True):
            start, end = _times(span)
            first = len(found)
            while first and found[first - 1][0] < end:
                first -= 1
            within = found[first:]
            name = str(span["name"]).removeprefix("aten::")
            fills_alone = name in _FILLS and not within
            computes = name not in _FILLS and all(_is_fill(launch.kernel) for _, launch in within)
            if name != span["name"] and name not in _NO_WORK and (fills_alone or computes):
                found[first:] = [(start, Launch(_class_of(span), (end - start) * 1e-6))]
        every += found
    return every


def _is_fill(kernel: KernelClass) -> bool:
    return kernel.name.removeprefix("aten::") in _FILLS


def _with_kernels(operators: Iterable[Span], kernels: Iterable[Span]) -> list[tuple[float, Launch]]:
    """The operators that started kernels, by the number that the profiler gives them; microseconds add up."""
    spent: dict[object, float] = defaultdict(float)
    for kernel in kernels:
        start, end = _times(kernel)
        spent[_args(kernel).get("External id")] += end - start
    spent.pop(None, None)
    return [
        (_times(span)[0], Launch(_class_of(span), spent[number] * 1e-6))
        for span in operators
        if (number := _args(span).get("External id")) in spent
    ]


def _class_of(span: Span) -> KernelClass:
    dims, kinds, concrete = (
        _list(_args(span).get(key)) for key in ("Input Dims", "Input type", "Concrete Inputs")
    )
    shapes, words, dtype = [], [], ""
    for place, kind in enumerate(kinds):
        if str(kind) in _DTYPES:
            shapes.append(tuple(int(str(size)) for size in _list(dims[place])))
            words.append(TENSOR)
            dtype = dtype or _DTYPES[str(kind)]
        else:
            words.append(str(concrete[place]) if place < len(concrete) and concrete[place] != "" else ABSENT)
    note = "" if set(words) <= {TENSOR} else ";".join(words)
    return KernelClass(str(span["name"]), tuple(shapes), dtype, note)


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _is_mark(span: Span) -> bool:
    return str(span["name"]).startswith(MARK) and span.get("cat") == "user_annotation"


def _args(span: Span) -> Mapping[str, object]:
    args = span.get("args")
    return args if isinstance(args, Mapping) else {}


def _times(span: Span) -> tuple[float, float]:
    start, length = float(str(span["ts"])), float(str(span["dur"]))
    return start, start + length
