"""The GPU models that can be simulated, by key: data sheets, in `models.json`, each number with its source.

A model that is ``like`` another takes from there what it does not state itself. It names its sources with the
words of ``sources_as`` before them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from perseus_ds.device.simulated.model import GpuModel, Roofline, grid_mhz
from perseus_ds.errors import ConfigError

_SHEETS: Mapping[str, Mapping[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text())
_NOTES = ("about", "like", "sources_as")


def _fields_of(key: str) -> dict[str, Any]:
    sheet = _SHEETS[key]
    fields = {name: value for name, value in sheet.items() if name not in _NOTES}
    if "like" not in sheet:
        return fields
    base = _fields_of(sheet["like"])
    borrowed = {name: sheet.get("sources_as", "") + source for name, source in base["sources"].items()}
    roofline = base["roofline"] | fields.get("roofline", {})
    return base | fields | {"roofline": roofline, "sources": borrowed | fields.get("sources", {})}


def _model(key: str) -> GpuModel:
    fields = {name: _frozen(value) for name, value in _fields_of(key).items()}
    roofline = Roofline(**{name: _frozen(value) for name, value in fields.pop("roofline").items()})
    clocks, sources = fields.pop("clocks_mhz"), MappingProxyType(fields.pop("sources"))
    return GpuModel(key=key, clocks_mhz=grid_mhz(**clocks), roofline=roofline, sources=sources, **fields)


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
