"""NVIDIA A100 PCIe 80 GB: the SXM chip under a 300 W cap."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from perseus_ds.device.simulated.model import GpuModel
from perseus_ds.device.simulated.models.a100_sxm import A100_SXM4_80GB

A100_PCIE_80GB: GpuModel = replace(
    A100_SXM4_80GB,
    key="a100-pcie-80gb",
    name="NVIDIA A100 80GB PCIe",
    memory_clocks_mhz=(1512,),
    dynamic_w=290.0,
    power_cap_w=300.0,
    sources=MappingProxyType(
        {
            **{field: f"as A100 SXM: {source}" for field, source in A100_SXM4_80GB.sources.items()},
            "memory_clocks_mhz": "one value on A100; 1512 assumed from nvidia-smi output on such boards",
            "voltage_squared": "assumed: as A100 SXM, the same chip",
            "dynamic_w": "assumed: dense kernels are throttled to about 1280 MHz under 300 W",
            "power_cap_w": "NVIDIA A100 80GB PCIe product brief: 300 W",
        }
    ),
)
