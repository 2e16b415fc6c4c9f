"""What a user can set about a simulated GPU: the ``simulated`` block, strictly read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from perseus_ds.device.simulated.models import model_named
from perseus_ds.errors import ConfigError

_MOST_SEEDS = 2**63
_TIMES = ("virtual", "scaled")


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What a number may be, the limits included but ``above``."""

    low: float = -math.inf
    above: float = -math.inf
    high: float = math.inf

    def holds(self, value: float) -> bool:
        """Whether a number may be that."""
        return self.low <= value <= self.high and value > self.above

    def __str__(self) -> str:
        """As a message states it."""
        limits = ((">=", self.low), (">", self.above), ("<=", self.high))
        return " and ".join(f"{sign} {limit:g}" for sign, limit in limits if abs(limit) < math.inf)


_ABOVE_0, _FROM_0, _SHARE = _Bounds(above=0), _Bounds(low=0), _Bounds(low=0, high=1)
_BOUNDS = {
    **dict.fromkeys(("time_scale", "host_step_s", "mean_forward_s", "backward_over_forward"), _ABOVE_0),
    **dict.fromkeys(("reduce_grads_s", "step_s", "transfer_s"), _FROM_0),
    **dict.fromkeys(("noise", "counter_noise", "memory_bound"), _SHARE),
    "intensity": _Bounds(above=0, high=2),
}
_OPTIONAL_BOUNDS = {"switch_latency_s": _FROM_0, "power_cap_w": _ABOVE_0}


@dataclass(frozen=True, slots=True)
class SimulatedSettings:
    """A simulated GPU and the work that emulation gives it.

    ``time`` is "virtual" (every GPU has a clock of its own that passes while it works, whatever the host's
    pace) or "scaled". Scaled time can be watched: the host sleeps while a GPU works. ``time_scale`` is how
    long a device second lasts on the host. At 0.05 a forward of 0.4 device seconds lasts 20 ms in scaled
    time. A second that the job spends between two iterations counts 20 in either. In virtual time it counts
    in whole steps of ``host_step_s`` host seconds. What is shorter is this host's pace, which would make
    every run's figures its own. ``reduce_grads_s``, ``step_s`` and ``transfer_s`` are how long these take in
    virtual time when nobody is waited for. ``noise`` is the relative standard deviation of instruction
    durations, ``counter_noise`` that of each tick of the energy counter. ``forward_s`` lists the mean forward
    of every stage at the maximum clock; ``None`` spreads ``mean_forward_s`` over the stages by their matmul
    weights. ``memory_bound`` is the fraction of work that does not follow the clock. ``intensity`` is its
    power against the densest kernels (at 1.0 the power cap throttles the top clocks). ``switch_latency_s``,
    ``power_cap_w`` override the model's; ``throttle_mhz`` holds the clock down, as a hot or broken device
    would. ``refuses_mhz`` are clocks that it lists and refuses, as some drivers do. ``kernels`` names a
    kernel trace (`perseus-ds kernels trace`). Computations are then the kernels that it lists, each with a
    roofline of its own. ``forward_s``, ``mean_forward_s``, ``memory_bound`` and ``intensity`` have no part.
    ``load_terms`` state how long a microbatch takes by its load, in parts of the mean forward: (fixed, by
    tokens, by squared lengths). They hold at the tokens and squares of ``mean_load``. Without them work is
    in proportion to the tokens, and the first microbatch is the mean one.
    """

    gpu: str = "a100-sxm4-80gb"
    time: str = "virtual"
    time_scale: float = 1.0
    host_step_s: float = 0.5
    seed: int = 0
    noise: float = 0.005
    counter_noise: float = 0.002
    forward_s: tuple[float, ...] | None = None
    mean_forward_s: float = 0.4
    backward_over_forward: float = 2.0
    memory_bound: float = 0.05
    intensity: float = 0.85
    reduce_grads_s: float = 0.03
    step_s: float = 0.02
    transfer_s: float = 0.002
    switch_latency_s: float | None = None
    power_cap_w: float | None = None
    throttle_mhz: int | None = None
    refuses_mhz: tuple[int, ...] = ()
    kernels: str | None = None
    load_terms: tuple[float, ...] | None = None
    mean_load: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what no device can be.

        Raises:
            ConfigError: an unknown model or a number out of its range, naming the key.
        """
        lowest_mhz = model_named(self.gpu).clocks_mhz[-1]
        if self.time not in _TIMES:
            raise ConfigError(
                f"simulated.time: got {self.time!r}", hint=f"expected one of {', '.join(_TIMES)}"
            )
        if type(self.seed) is not int or not 0 <= self.seed < _MOST_SEEDS:
            raise ConfigError(f"simulated.seed: got {self.seed!r:.40}, expected a whole number from 0 on")
        for key, bounds in _BOUNDS.items():
            _check(key, getattr(self, key), bounds)
        _check_forwards(self.forward_s)
        self._check_refused()
        self._check_loads()
        for key, bounds in {**_OPTIONAL_BOUNDS, "throttle_mhz": _Bounds(low=lowest_mhz)}.items():
            if getattr(self, key) is not None:
                _check(key, getattr(self, key), bounds)
        if not (self.kernels is None or (isinstance(self.kernels, str) and self.kernels)):
            raise ConfigError(f"simulated.kernels: got {self.kernels!r}, expected the name of a kernel trace")

    def _check_refused(self) -> None:
        clocks_mhz: object = self.refuses_mhz
        grid = model_named(self.gpu).clocks_mhz
        if not isinstance(clocks_mhz, tuple) or any(one not in grid for one in clocks_mhz):
            raise ConfigError(
                f"simulated.refuses_mhz: got {clocks_mhz!r:.80}, expected a list of clocks of {self.gpu}",
                hint=f"it has {len(grid)} from {grid[-1]} to {grid[0]} MHz",
            )

    def _check_loads(self) -> None:
        for key, entries in (("load_terms", 3), ("mean_load", 2)):
            given: object = getattr(self, key)
            if given is None:
                continue
            if not isinstance(given, tuple) or len(given) != entries:
                raise ConfigError(f"simulated.{key}: got {given!r:.80}, expected a list of {entries} numbers")
            for place, value in enumerate(given):
                _check(f"{key}[{place}]", value, _FROM_0)
        if (self.load_terms is None) != (self.mean_load is None):
            raise ConfigError("simulated.load_terms and simulated.mean_load belong together: one is missing")
        if self.mean_load is not None:
            _check("mean_load[0]", self.mean_load[0], _ABOVE_0)


def simulated_settings(block: Mapping[str, object], *, rank: int = 0) -> SimulatedSettings:
    """Read the ``simulated`` block of the configuration, as one rank of the job has it.

    ``ranks`` in it holds what is different on some: ``{"ranks": {"3": {"gpu": "a40"}}}``. All of them are
    checked on every rank.

    Raises:
        ConfigError: an unknown key, a wrong type or an impossible number, naming the key.
    """
    common = {key: value for key, value in block.items() if key != _RANKS}
    alike, of_rank = _settings(common, known=(*_KEYS, _RANKS)), {}
    for number, own in _of_ranks(block.get(_RANKS, {})).items():
        for key in own:
            if key not in _KEYS or key == "time":
                raise ConfigError(f"simulated.ranks.{number}.{key}: no key of one rank alone")
        of_rank[number] = _settings(common | own, known=_KEYS)
    return of_rank.get(rank, alike)


def _of_ranks(ranks: object) -> dict[int, dict[str, object]]:
    hint = 'expected {"3": {"gpu": "a40"}}'
    if not isinstance(ranks, Mapping):
        raise ConfigError(f"simulated.ranks: got {ranks!r}", hint=hint)
    found = {}
    for number, own in ranks.items():
        if not _is_number(str(number)) or not isinstance(own, Mapping):
            raise ConfigError(f"simulated.ranks.{number!s:.40}: got {own!r:.80}", hint=hint)
        found[int(number)] = {str(key): value for key, value in own.items()}
    return found


def _is_number(text: str) -> bool:
    """Whether a key is a rank's number as numbers are written: 03 would be a second name of 3."""
    return text.isascii() and text.isdecimal() and (text == "0" or not text.startswith("0"))


def _settings(block: Mapping[str, object], *, known: Sequence[str]) -> SimulatedSettings:
    for key in block:
        if key not in known:
            raise ConfigError(f"simulated.{key}: unknown key", hint=f"known: {', '.join(known)}")
    values = dict(block)
    for key in _LISTS:
        if isinstance(values.get(key), (list, tuple)):
            values[key] = tuple(values[key])  # type: ignore[arg-type]  # checked per item below
    return SimulatedSettings(**values)  # type: ignore[arg-type]  # __post_init__ checks every value


_RANKS = "ranks"
_LISTS = ("forward_s", "load_terms", "mean_load", "refuses_mhz")
_KEYS = tuple(field.name for field in fields(SimulatedSettings))


def _check_forwards(forward_s: object) -> None:
    if not isinstance(forward_s, tuple | None) or forward_s == ():
        raise ConfigError(f"simulated.forward_s: got {forward_s!r}, expected a list, one per stage")
    for stage, one_s in enumerate(forward_s or ()):
        _check(f"forward_s[{stage}]", one_s, _ABOVE_0)


def _check(key: str, value: object, bounds: _Bounds) -> None:
    number = not isinstance(value, bool) and isinstance(value, (int, float)) and abs(value) < math.inf
    if not number or not bounds.holds(float(value)):  # type: ignore[arg-type]  # a number by now
        raise ConfigError(f"simulated.{key}: got {value!r}, expected a number {bounds}")
