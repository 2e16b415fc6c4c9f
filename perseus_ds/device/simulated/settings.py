"""Settings of a simulated GPU: the ``simulated`` block, strictly read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from perseus_ds.device.simulated.models import model_named
from perseus_ds.errors import ConfigError

_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Positive = Annotated[_Number, Field(gt=0)]
_NotNegative = Annotated[_Number, Field(ge=0)]
_Share = Annotated[_NotNegative, Field(le=1)]


@dataclass(frozen=True, slots=True)
class SimulatedSettings:
    """A simulated GPU and the work that emulation gives it.

    ``time`` is "virtual" (every GPU has a clock of its own that passes while it works, whatever the host's
    pace) or "scaled", which can be watched: the host sleeps while a GPU works, ``time_scale`` host seconds
    for a device second. What the job spends between two iterations counts 1 / ``time_scale`` times in either,
    in virtual time in whole steps of ``host_step_s`` host seconds: what is shorter is this host's pace.
    ``reduce_grads_s``, ``step_s`` and ``transfer_s`` are of virtual time, when nobody is waited for.
    ``noise`` and ``counter_noise`` are relative standard deviations, of instructions and of counter ticks.
    ``forward_s`` lists the mean forward of every stage at the maximum clock; ``None`` spreads
    ``mean_forward_s`` by their matmul weights. ``memory_bound`` is the fraction of work that does not follow
    the clock, ``intensity`` its power against the densest kernels. ``throttle_mhz`` holds the clock down,
    ``refuses_mhz`` are clocks that it lists and refuses. ``kernels`` names a kernel trace in place of these.
    ``load_terms`` state how long a microbatch takes by its load, in parts of the mean forward: (fixed, by
    tokens, by squared lengths), at the tokens and squares of ``mean_load``. Without them work is in
    proportion to the tokens, and the first microbatch is the mean one.
    """

    gpu: str = "a100-sxm4-80gb"
    time: Literal["virtual", "scaled"] = "virtual"
    time_scale: _Positive = 1.0
    host_step_s: _Positive = 0.5
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**63)] = 0
    noise: _Share = 0.005
    counter_noise: _Share = 0.002
    forward_s: Annotated[tuple[_Positive, ...], Field(min_length=1)] | None = None
    mean_forward_s: _Positive = 0.4
    backward_over_forward: _Positive = 2.0
    memory_bound: _Share = 0.05
    intensity: Annotated[_Positive, Field(le=2)] = 0.85
    reduce_grads_s: _NotNegative = 0.03
    step_s: _NotNegative = 0.02
    transfer_s: _NotNegative = 0.002
    switch_latency_s: _NotNegative | None = None
    power_cap_w: _Positive | None = None
    throttle_mhz: Annotated[int, Field(strict=True)] | None = None
    refuses_mhz: tuple[int, ...] = ()
    kernels: Annotated[str, Field(min_length=1)] | None = None
    load_terms: tuple[_NotNegative, _NotNegative, _NotNegative] | None = None
    mean_load: tuple[_Positive, _NotNegative] | None = None

    def __post_init__(self) -> None:
        """Refuse what its GPU model cannot do.

        Raises:
            ConfigError: naming the key.
        """
        grid = model_named(self.gpu).clocks_mhz
        if self.throttle_mhz is not None and self.throttle_mhz < grid[-1]:
            raise ConfigError(
                f"simulated.throttle_mhz: got {self.throttle_mhz}, expected a number >= {grid[-1]}"
            )
        if not set(self.refuses_mhz) <= set(grid):
            raise ConfigError(
                f"simulated.refuses_mhz: got {self.refuses_mhz!r:.80}, expected clocks of {self.gpu}",
                hint=f"it has {len(grid)} from {grid[-1]} to {grid[0]} MHz",
            )
        if (self.load_terms is None) != (self.mean_load is None):
            raise ConfigError("simulated.load_terms and simulated.mean_load belong together: one is missing")


def simulated_settings(block: Mapping[str, object], *, rank: int = 0) -> SimulatedSettings:
    """Read the ``simulated`` block of the configuration, as one rank of the job has it.

    ``ranks`` in it holds what is different on some: ``{"ranks": {"3": {"gpu": "a40"}}}``. All of them are
    checked on every rank.

    Raises:
        ConfigError: an unknown key, a wrong type or an impossible number, naming the key.
    """
    common = {key: value for key, value in block.items() if key != _RANKS}
    alike, of_rank = _settings(common), {}
    for number, own in _of_ranks(block.get(_RANKS, {})).items():
        for key in own:
            if key not in _KEYS or key == "time":
                raise ConfigError(f"simulated.ranks.{number}.{key}: no key of one rank alone")
        of_rank[number] = _settings(common | own)
    return of_rank.get(rank, alike)


def _of_ranks(ranks: object) -> dict[int, dict[str, object]]:
    hint = 'expected {"3": {"gpu": "a40"}}'
    if not isinstance(ranks, Mapping):
        raise ConfigError(f"simulated.ranks: got {ranks!r}", hint=hint)
    found = {}
    for number, own in ranks.items():
        # as numbers are written: 03 would be a second name of 3
        if not re.fullmatch("0|[1-9][0-9]*", str(number)) or not isinstance(own, Mapping):
            raise ConfigError(f"simulated.ranks.{number!s:.40}: got {own!r:.80}", hint=hint)
        found[int(number)] = {str(key): value for key, value in own.items()}
    return found


def _settings(block: Mapping[str, object]) -> SimulatedSettings:
    for key in block:
        if key not in _KEYS:
            raise ConfigError(f"simulated.{key}: unknown key", hint=f"known: {', '.join((*_KEYS, _RANKS))}")
    try:
        return _reader().validate_python(dict(block))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"][:2])
        expected = first["msg"].replace("Input should be", "expected").replace("valid tuple", "list")
        raise ConfigError(f"simulated{key}: got {first['input']!r:.80}, {expected}") from error


@cache
def _reader() -> TypeAdapter[SimulatedSettings]:
    return TypeAdapter(SimulatedSettings)


_RANKS = "ranks"
_KEYS = tuple(field.name for field in fields(SimulatedSettings))
