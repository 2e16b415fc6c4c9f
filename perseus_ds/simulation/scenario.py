"""The job that is emulated: its machines, what goes wrong in it, how real it is; `read_scenario` reads it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

import numpy as np
import pydantic
import yaml  # type: ignore[import-untyped]  # no stubs
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.device.simulated.models import model_named
from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.files import read_bounded, read_table, reason_of
from perseus_ds.profile import Profile
from perseus_ds.schedule import Instruction, Load
from perseus_ds.simulation.kernel import Floats

_MOST_BYTES, _MOST_SCENARIO_BYTES = 64 << 20, 1 << 20
_DRAWN = 1000  # microbatches whose mean stands for a distribution's
_LOOKED_AT = 20  # iterations
_TRACE_BIN_S = 0.1
_STRICT = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
Model = TypeVar("Model", bound=pydantic.BaseModel)
_AMOUNT = {"slow": "factor", "cap": "mhz", "link": "seconds", "input": "seconds", "announced": "factor"}


class Straggler(pydantic.BaseModel):
    """A pipeline that is held back, or one of its ranks, or one tensor-parallel GPU of that rank.

    ``slow`` multiplies durations by ``factor``. ``cap`` is the highest clock that is reached (``mhz``; a
    thermal or power cap). ``link`` adds ``seconds`` to all that the rank sends, ``input`` to what is before
    the first instruction. ``lost`` takes no part. ``announced`` is reported from outside, as slow by
    ``factor``, and slows nothing. It lasts from iteration ``first`` to ``last - 1`` (``from`` and ``to`` in
    files).
    """

    model_config = _STRICT

    kind: Literal["slow", "cap", "link", "input", "lost", "announced"]
    pipeline: NonNegativeInt
    rank: NonNegativeInt | None = None
    gpu: NonNegativeInt | None = None
    factor: Annotated[float, pydantic.Field(ge=1.0)] | None = None
    mhz: NonNegativeFloat | None = None
    seconds: NonNegativeFloat | None = None
    first: NonNegativeInt = pydantic.Field(default=0, validation_alias=pydantic.AliasChoices("from", "first"))
    last: NonNegativeInt | None = pydantic.Field(
        default=None, validation_alias=pydantic.AliasChoices("to", "last")
    )

    @pydantic.model_validator(mode="after")
    def _has_its_amount(self) -> Self:
        given = {name for name in ("factor", "mhz", "seconds") if getattr(self, name) is not None}
        if given != {_AMOUNT.get(self.kind)} - {None}:
            needed = _AMOUNT.get(self.kind, "no amount")
            raise ValueError(f"a straggler of kind {self.kind} needs {needed}")
        return self

    @property
    def amount(self) -> float:
        """The number that comes with its kind; 1 where there is none."""
        return float(getattr(self, _AMOUNT[self.kind])) if self.kind in _AMOUNT else 1.0

    def is_active(self, iteration: int) -> bool:
        return self.first <= iteration and (self.last is None or iteration < self.last)

    def check_exists(self, *, pipelines: int, ranks: int, tensor: int) -> None:
        """Refuse what is not in the job.

        Raises:
            ConfigError: naming the pipeline, rank or GPU.
        """
        for name, count in (("pipeline", pipelines), ("rank", ranks), ("gpu", tensor)):
            value = getattr(self, name)
            if value is not None and value >= count:
                raise ConfigError(
                    f"straggler {self.kind}: {name} {value} does not exist",
                    hint=f"the job has {name}s 0 to {count - 1}",
                )


def parse_straggler(text: str) -> Straggler:
    """Read ``slow:pipeline=1,factor=1.2,from=10,to=50`` (and ``rank=``, ``gpu=``).

    Raises:
        ConfigError: an unknown kind or key, a value that is not a number, or one that is missing.
    """
    kind, _, rest = text.partition(":")
    pairs = (part.partition("=") for part in rest.split(",") if part)
    content = {"kind": kind} | {key: value for key, _, value in pairs}
    return _validate(Straggler, content, f"straggler {text!r}")


@dataclass(frozen=True, slots=True)
class EmulatedLoads:
    """The load of every microbatch: a sequence of some length; ``mean`` is the mean of all.

    ``lengths`` are those of an iteration, in the shape asked for: [pipelines, microbatches].
    """

    mean: Load
    lengths: Callable[[int, tuple[int, int]], Floats]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Take lengths in turn, over and over, from a CSV's column ``length``.

        Raises:
            PerseusError: naming the file and its row.
        """
        rows = read_table(path, ["length"], most_bytes=_MOST_BYTES)
        listed = [_length(row["length"], where) for where, row in rows]
        if not any(listed):
            raise ConfigError(f"{path}: no length above 0", hint="expected one length a row")

        def lengths(iteration: int, shape: tuple[int, int]) -> Floats:
            places = np.arange(math.prod(shape)).reshape(shape) + iteration * math.prod(shape)
            return np.take(listed, places, mode="wrap")

        return cls(Load.mean_of(_loads(listed)), lengths)

    @classmethod
    def draw(cls, draw: Callable[[np.random.Generator, int | tuple[int, int]], Floats], seed: int) -> Self:
        mean = Load.mean_of(_loads(draw(np.random.default_rng(seed), _DRAWN).tolist()))
        return cls(mean, lambda iteration, shape: draw(np.random.default_rng([seed, iteration]), shape))

    def of(self, iteration: int, *, pipelines: int, microbatches: int) -> list[list[Load]]:
        """Return the loads of an iteration.

        Shape: the result [pipelines][microbatches].
        """
        return [_loads(row) for row in self.lengths(iteration, (pipelines, microbatches)).tolist()]

    def factors(
        self, profile: Profile, nodes: Sequence[Instruction], iteration: int, *, pipelines: int
    ) -> Floats:
        """Return how many times its mean duration each computation takes in an iteration.

        By the profile's own fit, where it has one; else in proportion to the tokens.

        Shape: the result [pipelines, nodes].
        """
        microbatches = 1 + max(node.microbatch for node in nodes)
        loads = self.of(iteration, pipelines=pipelines, microbatches=microbatches)
        found = np.ones((pipelines, len(nodes)))
        for place, node in enumerate(nodes):
            if node.kind.is_computation:
                fit, own = profile.loads.get((node.stage, node.kind)), [row[node.microbatch] for row in loads]
                found[:, place] = [
                    load.tokens / self.mean.tokens if fit is None else fit.factor(load, mean=self.mean)
                    for load in own
                ]
        return found

    def variation(self, profile: Profile, nodes: Sequence[Instruction]) -> float:
        """Return by what share durations of a computation vary for their loads, over a few iterations."""
        computed = [place for place, node in enumerate(nodes) if node.kind.is_computation]
        several = [self.factors(profile, nodes, n, pipelines=1)[:, computed] for n in range(_LOOKED_AT)]
        found = np.concatenate(several)
        return float(found.std() / found.mean())


def _length(text: str | None, where: str) -> float:
    try:
        length = float(text or "")
    except ValueError:
        length = -1.0
    if not 0.0 <= length <= 1e12:  # noqa: PLR2004  # a sum of these is finite
        raise ConfigError(f"{where}: length is {text!r:.40}", hint="expected a number, 0 or more")
    return length


def _loads(lengths: Sequence[float]) -> list[Load]:
    return [Load.of_lengths((length,)) for length in lengths]


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """Pipelines of ``tensor`` GPUs per rank, numbered pipeline by pipeline, rank by rank, node after node.

    ``change`` is how clocks really change, ``reckoned`` what the job believes of it and asks ahead by (None:
    the truth). ``waiting_w`` is the power of a waiting GPU, a number or by clock; None: as the plans were
    made with.

    Raises:
        ConfigError: no pipelines, no GPUs.
    """

    pipelines: int = 1
    tensor: int = 1
    gpus_per_node: int = 8
    change: ClockChange = field(default_factory=ClockChange)
    reckoned: ClockChange | None = None
    waiting_w: Mapping[int, float] | float | None = None

    def __post_init__(self) -> None:
        for name in ("pipelines", "tensor", "gpus_per_node"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", hint="expected 1 or more")

    def gpus(self, ranks: int) -> int:
        return self.pipelines * ranks * self.tensor

    def islands(self, ranks: int) -> list[tuple[int, int]]:
        """Split the pipelines into ranges that share nodes with no others."""
        step = 1
        while step < self.pipelines and (step * ranks * self.tensor) % self.gpus_per_node:
            step += 1
        return [(first, min(first + step, self.pipelines)) for first in range(0, self.pipelines, step)]


@dataclass(frozen=True, slots=True)
class Conditions:
    """Noise, loads and other conditions of an emulated job.

    ``noise`` is the relative standard deviation of one computation. ``work`` multiplies all computations of
    an iteration, over and over (batches of other lengths). ``loads`` are what microbatches work on, each its
    own. ``trace_bin_s`` 0 keeps no power trace.
    """

    noise: float = 0.0
    seed: int = 0
    work: Sequence[float] = (1.0,)
    loads: EmulatedLoads | None = None
    trace_bin_s: float = 0.0


class LoadSource(pydantic.BaseModel):
    """Source of the loads of microbatches: one of the three.

    ``file`` is a CSV file with a column ``length``. ``lognormal`` is the standard deviation of the logarithm
    of lengths of mean 1, ``lengths`` has a weight for each length: both are drawn.
    """

    model_config = _STRICT

    file: str | None = None
    lognormal: Annotated[float, pydantic.Field(ge=0.0, le=5.0)] | None = None
    lengths: Annotated[dict[PositiveFloat, PositiveFloat], pydantic.Field(min_length=1)] | None = None

    @pydantic.model_validator(mode="after")
    def _is_one(self) -> Self:
        if [self.file, self.lognormal, self.lengths].count(None) != 2:  # noqa: PLR2004
            raise ValueError("expected one of file, lognormal and lengths")
        return self

    def read(self, folder: Path, seed: int) -> EmulatedLoads:
        """Return the loads; a file is looked for in ``folder``.

        Raises:
            PerseusError: that file is missing or damaged.
        """
        if self.file is not None:
            return EmulatedLoads.read(folder / self.file)
        if (sigma := self.lognormal) is not None:
            return EmulatedLoads.draw(
                lambda drawn, shape: drawn.lognormal(-(sigma**2) / 2.0, sigma, shape), seed
            )
        lengths = self.lengths or {}
        share = np.array([*lengths.values()]) / sum(lengths.values())
        return EmulatedLoads.draw(lambda drawn, shape: drawn.choice([*lengths], shape, p=share), seed)


class Scenario(pydantic.BaseModel):
    """An emulated job, as a YAML file states it; every key has a default.

    ``pipelines`` of ``tensor`` GPUs per rank run for ``iterations``; ``gpus_per_node`` share a driver.
    ``stragglers`` are answered unless ``answered`` is false. ``noise_pct`` is the standard deviation of one
    computation, ``work`` the lengths of batches in turn, ``loads`` those of microbatches. ``gpu`` names a
    simulated GPU whose waiting power and changes of clock are taken. The last four state how clocks change:
    the call, until the clock is in force, for which a call holds up the node's others, and for which it stops
    the GPU.
    """

    model_config = _STRICT

    pipelines: PositiveInt = 1
    tensor: PositiveInt = 1
    gpus_per_node: PositiveInt = 8
    iterations: PositiveInt = 20
    stragglers: tuple[Straggler, ...] = ()
    answered: bool = True
    noise_pct: NonNegativeFloat = 0.0
    seed: NonNegativeInt = 0
    work: Annotated[tuple[PositiveFloat, ...], pydantic.Field(min_length=1)] = (1.0,)
    loads: LoadSource | None = None
    gpu: str | None = None
    call_ms: NonNegativeFloat | None = None
    settle_ms: NonNegativeFloat | None = None
    queue_ms: NonNegativeFloat = 0.0
    stall_ms: NonNegativeFloat = 0.0

    def cluster(self, profile: Profile) -> ClusterShape:
        """Return the machines, with waiting power by clock where the GPU model or the profile has it.

        Raises:
            ConfigError: an unknown GPU.
        """
        model = None if self.gpu is None else model_named(self.gpu)
        call_s, settle_s = (0.0, 0.0) if model is None else (model.call_s, model.settle_s)
        call_s = call_s if self.call_ms is None else self.call_ms / 1e3
        settle_s = settle_s if self.settle_ms is None else self.settle_ms / 1e3
        powers_w = profile.blocking_w.items() if model is None else model.blocking_w
        return ClusterShape(
            pipelines=self.pipelines,
            tensor=self.tensor,
            gpus_per_node=self.gpus_per_node,
            change=ClockChange(call_s, settle_s, settle_s, self.queue_ms / 1e3, self.stall_ms / 1e3),
            waiting_w={int(mhz): watts for mhz, watts in powers_w} or None,
        )

    def conditions(self, folder: Path = Path()) -> Conditions:
        """Return how real the job is; a file of loads is looked for in ``folder``.

        Raises:
            PerseusError: that file is missing or damaged.
        """
        loads = None if self.loads is None else self.loads.read(folder, self.seed)
        return Conditions(self.noise_pct / 100.0, self.seed, self.work, loads=loads, trace_bin_s=_TRACE_BIN_S)


def read_scenario(path: Path | None, changes: dict[str, object]) -> Scenario:
    """Read a YAML file (None: no file), and lay ``changes`` over it.

    Raises:
        ConfigError: naming the file, the key and what is wrong with it.
    """
    if path is None:
        return _validate(Scenario, changes, "the scenario")
    try:
        content = yaml.safe_load(read_bounded(path, most_bytes=_MOST_SCENARIO_BYTES))
    except (OSError, PerseusError) as error:
        raise ConfigError(f"{path} {reason_of(error)}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path} is not YAML: {str(error).splitlines()[0]:.200}") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError(f"{path} is not a scenario", hint="expected keys such as `pipelines: 16`")
    return _validate(Scenario, content | changes, str(path))


def _validate(model: type[Model], content: Mapping[str, object], where: str) -> Model:
    try:
        return model.model_validate(content)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        hint = f"keys: {', '.join(model.model_fields)}" if first["type"] == "extra_forbidden" else None
        raise ConfigError(f"{where}: {key + ': ' if key else ''}{message}", hint=hint) from error
