"""The GPU models that can be simulated, by key."""

from __future__ import annotations

from types import MappingProxyType

from perseus_ds.device.simulated.model import GpuModel
from perseus_ds.device.simulated.models.a40 import A40
from perseus_ds.device.simulated.models.a100_pcie import A100_PCIE_80GB
from perseus_ds.device.simulated.models.a100_sxm import A100_SXM4_40GB, A100_SXM4_80GB
from perseus_ds.device.simulated.models.hopper import H100_SXM, H200
from perseus_ds.device.simulated.models.rtx_3080_ti import RTX_3080_TI
from perseus_ds.device.simulated.models.rtx_a4000 import RTX_A4000
from perseus_ds.errors import ConfigError

_ALL = (
    A100_SXM4_80GB,
    A100_SXM4_40GB,
    A100_PCIE_80GB,
    A40,
    H100_SXM,
    H200,
    RTX_3080_TI,
    RTX_A4000,
)
MODELS = MappingProxyType({model.key: model for model in _ALL})


def model_named(key: str) -> GpuModel:
    """Look a model up.

    Raises:
        ConfigError: the key is not a known one.
    """
    if not isinstance(key, str) or key not in MODELS:
        raise ConfigError(f"simulated.gpu: no GPU model {key!r:.80}", hint=f"known: {', '.join(MODELS)}")
    return MODELS[key]
