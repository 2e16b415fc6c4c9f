"""NVIDIA H100 SXM and H200: the grid and the counter are known, the powers are guesses."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from perseus_ds.device.simulated.model import GpuModel, Roofline, grid_mhz

_ROOFLINE = Roofline(
    processors=132,
    product_flops=989e12 * 1980 / 1830,
    product_efficiency=0.7,
    lane_instructions=16896 * 1.98e9,
    bandwidth=3350e9 * 0.9,
    write_efficiency=0.8,
    memory_w=((2619, 60.0),),
    traffic_w=80.0,
    stalled_activity=0.3,
    lane_intensity=0.5,
)

H100_SXM = GpuModel(
    key="h100-sxm",
    name="NVIDIA H100 80GB HBM3",
    clocks_mhz=grid_mhz(210, 1980),
    memory_clocks_mhz=(2619,),
    voltage_squared=((210, 1.0), (1300, 1.0), (1450, 1.09), (1600, 1.24), (1800, 1.5), (1980, 1.8)),
    blocking_w=((210, 85.0), (1000, 92.0), (1300, 98.0), (1650, 112.0), (1980, 135.0)),
    dynamic_w=690.0,
    power_cap_w=700.0,
    leakage_w_per_k=0.45,
    reference_c=60.0,
    ambient_c=30.0,
    thermal_k_per_w=0.05,
    thermal_s=40.0,
    call_s=0.002,
    settle_s=0.004,
    counter_period_s=0.100,
    counter_window_s=0.025,
    sources=MappingProxyType(
        {
            "clocks_mhz": "to 1980 MHz in steps of 15: nvmlDeviceGetSupportedGraphicsClocks; 210 assumed",
            "memory_clocks_mhz": "2619 assumed from nvidia-smi output; lower ones are deferred and left out",
            "voltage_squared": "assumed: the shape of A100's, stretched to 1980 MHz",
            "blocking_w": "assumed",
            "dynamic_w": "assumed: dense kernels are throttled under 700 W",
            "power_cap_w": "NVIDIA H100 data sheet: up to 700 W",
            "leakage_w_per_k": "assumed: A100's, by the share of power",
            "reference_c": "assumed",
            "ambient_c": "assumed",
            "thermal_k_per_w": "assumed: 60 degrees C at about 600 W",
            "thermal_s": "assumed",
            "call_s": "assumed: a third of the whole",
            "settle_s": "Velicka 2025 (arXiv 2502.20075), second-hand: Hopper about 6 ms in all",
            "counter_period_s": "Yang, Adamek, Armour, SC'24 (arXiv 2312.02741): about 100 ms",
            "counter_window_s": "Yang, Adamek, Armour, SC'24 (arXiv 2312.02741): 25 of every 100 ms",
            "roofline": "NVIDIA H100 data sheet: 989 TFLOPS dense half precision, 3 350 GB/s, 16 896 cores; "
            "efficiencies and the power of memory and traffic assumed",
        }
    ),
    roofline=_ROOFLINE,
)

H200 = replace(
    H100_SXM,
    key="h200",
    name="NVIDIA H200",
    memory_clocks_mhz=(3201,),
    sources=MappingProxyType(
        {
            **{field: f"as H100 SXM: {source}" for field, source in H100_SXM.sources.items()},
            "clocks_mhz": "to 1980 MHz in steps of 15: nvmlDeviceGetSupportedGraphicsClocks; 210 assumed",
            "power_cap_w": "NVIDIA H200 data sheet: up to 700 W",
            "memory_clocks_mhz": "3201 assumed from nvidia-smi output",
            "roofline": "as H100 SXM, but 4 800 GB/s (NVIDIA H200 data sheet)",
        }
    ),
    roofline=replace(_ROOFLINE, bandwidth=4800e9 * 0.9),
)
