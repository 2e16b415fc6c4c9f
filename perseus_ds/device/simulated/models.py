"""The GPU models that can be simulated, by key: data sheets, in `models.json`, each number with its source.

A model that is ``like`` another takes from there what it does not state itself; that one names its sources,
which hold with the words of ``sources_as`` before them. A source that begins with ``assumed`` is ours.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from perseus_ds.errors import ConfigError

Table = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Roofline:
    """Parameters that a model needs for single kernels.

    ``product_flops`` (dense, half precision, of which ``product_efficiency`` is reached) and
    ``lane_instructions`` are per second at the maximum core clock. ``bandwidth`` is in bytes per second at
    the default memory clock. ``memory_w`` is the power of the memory by its clock, ``traffic_w`` what moving
    data at full speed adds. Cores that wait for memory have ``stalled_activity`` of the densest kernels'
    dynamic power, those that run other instructions ``lane_intensity``.
    """

    processors: int
    product_flops: float
    product_efficiency: float
    lane_instructions: float
    bandwidth: float
    write_efficiency: float
    memory_w: Table
    traffic_w: float
    stalled_activity: float
    lane_intensity: float


@dataclass(frozen=True, slots=True, eq=False)
class GpuModel:
    """A kind of GPU; compared and hashed by identity, so that it can key a cache.

    ``voltage_squared`` is V^2 over its flat low-clock value, ``blocking_w`` the power of a GPU that
    waits inside a kernel (NCCL), both against MHz. ``dynamic_w`` is what work of intensity 1 adds at the
    maximum clock. The counter sees ``counter_window_s`` out of every ``counter_period_s``.
    """

    key: str
    name: str
    clocks_mhz: tuple[int, ...]
    memory_clocks_mhz: tuple[int, ...]
    voltage_squared: Table
    blocking_w: Table
    dynamic_w: float
    power_cap_w: float
    leakage_w_per_k: float
    reference_c: float
    ambient_c: float
    thermal_k_per_w: float
    thermal_s: float
    call_s: float
    settle_s: float
    counter_period_s: float
    counter_window_s: float
    roofline: Roofline

    @property
    def max_clock_mhz(self) -> int:
        return self.clocks_mhz[0]


def interpolate(table: Table, x: float) -> float:
    """Read an ascending table between its points, flat beyond its ends.

    Cost: O(log n).
    """
    at = bisect_left(table, (x,))
    if at == 0:
        return table[0][1]
    if at == len(table):
        return table[-1][1]
    (x0, y0), (x1, y1) = table[at - 1], table[at]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


_SHEETS: Mapping[str, Mapping[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text())
_NOTES = ("about", "like", "sources", "sources_as")


def _fields_of(key: str) -> dict[str, Any]:
    sheet = _SHEETS[key]
    fields = {name: value for name, value in sheet.items() if name not in _NOTES}
    if "like" not in sheet:
        return fields
    base = _fields_of(sheet["like"])
    return base | fields | {"roofline": base["roofline"] | fields.get("roofline", {})}


def _model(key: str) -> GpuModel:
    fields = {name: _frozen(value) for name, value in _fields_of(key).items()}
    roofline = Roofline(**{name: _frozen(value) for name, value in fields.pop("roofline").items()})
    grid = fields.pop("clocks_mhz")
    clocks_mhz = tuple(range(grid["high"], grid["low"] - 1, -grid["step"]))
    return GpuModel(key=key, clocks_mhz=clocks_mhz, roofline=roofline, **fields)


def _frozen(value: Any) -> Any:  # noqa: ANN401  # whatever JSON holds
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


MODELS: Mapping[str, GpuModel] = MappingProxyType({key: _model(key) for key in _SHEETS})


def model_named(key: str) -> GpuModel:
    """Look a model up.

    Raises:
        ConfigError: the key is not a known one.
    """
    if not isinstance(key, str) or key not in MODELS:
        raise ConfigError(f"simulated.gpu: no GPU model {key!r:.80}", hint=f"known: {', '.join(MODELS)}")
    return MODELS[key]
