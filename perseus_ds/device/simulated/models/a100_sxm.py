"""NVIDIA A100 SXM4, 80 and 40 GB: the model that is fitted best, since others are guessed from it."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from perseus_ds.device.simulated.model import GpuModel, Roofline, grid_mhz

_FIT = (
    "fitted to the Perseus artifact's GPT-3 175B profile on A100 SXM (ml-energy/zeus, branch kronos), powers "
    "scaled so that its throttled top clocks draw the 400 W cap; one public log has V^2 x1.33 at 1200 and "
    "x1.9 at 1410 MHz"
)
_LOG = "one public log of an A100-SXM4: a default, not a truth"

_ROOFLINE = Roofline(
    processors=108,
    product_flops=312e12,
    product_efficiency=0.75,
    lane_instructions=6912 * 1.41e9,
    bandwidth=2039e9 * 0.9,
    write_efficiency=0.8,
    memory_w=((1593, 35.0),),
    traffic_w=60.0,
    stalled_activity=0.3,
    lane_intensity=0.55,
)

A100_SXM4_80GB = GpuModel(
    key="a100-sxm4-80gb",
    name="NVIDIA A100-SXM4-80GB",
    clocks_mhz=grid_mhz(210, 1410),
    memory_clocks_mhz=(1593,),
    voltage_squared=((210, 1.0), (1050, 1.0), (1140, 1.075), (1230, 1.19), (1320, 1.375), (1410, 1.62)),
    blocking_w=((300, 56.4), (510, 57.6), (705, 59.4), (900, 61.4), (1200, 69.7), (1410, 85.4)),
    dynamic_w=363.0,
    power_cap_w=400.0,
    leakage_w_per_k=0.30,
    reference_c=60.0,
    ambient_c=30.0,
    thermal_k_per_w=0.085,
    thermal_s=40.0,
    call_s=0.010,
    settle_s=0.027,
    counter_period_s=0.100,
    counter_window_s=0.025,
    sources=MappingProxyType(
        {
            "clocks_mhz": "81 clocks, 210 to 1410 MHz in steps of 15: nvmlDeviceGetSupportedGraphicsClocks",
            "memory_clocks_mhz": "one value on A100; 1593 assumed from nvidia-smi output on such boards",
            "voltage_squared": _FIT,
            "blocking_w": _LOG + "; the Perseus artifact uses a constant 83.64 W",
            "dynamic_w": _FIT,
            "power_cap_w": "NVIDIA A100 data sheet: 400 W",
            "leakage_w_per_k": _LOG + ": 0.26 to 0.35 W per degree C",
            "reference_c": "assumed: a busy, water- or well air-cooled board",
            "ambient_c": "assumed",
            "thermal_k_per_w": "assumed: 60 degrees C at about 350 W",
            "thermal_s": "assumed",
            "call_s": _LOG + ": 10 ms under load; the Perseus paper says about 10 ms in all",
            "settle_s": _LOG + ": 26 to 29 ms",
            "counter_period_s": "Yang, Adamek, Armour, SC'24 (arXiv 2312.02741): about 100 ms",
            "counter_window_s": "Yang, Adamek, Armour, SC'24 (arXiv 2312.02741): 25 of every 100 ms",
            "roofline": "NVIDIA A100 data sheet: 312 TFLOPS dense half precision, 2 039 GB/s, 6 912 cores; "
            "efficiencies and the power of traffic assumed; its one memory clock makes memory_w a constant",
        }
    ),
    roofline=_ROOFLINE,
)

A100_SXM4_40GB = replace(
    A100_SXM4_80GB,
    key="a100-sxm4-40gb",
    name="NVIDIA A100-SXM4-40GB",
    memory_clocks_mhz=(1215,),
    sources=MappingProxyType(
        {
            **A100_SXM4_80GB.sources,
            "memory_clocks_mhz": "one value on A100; 1215 assumed from nvidia-smi output on such boards",
            "roofline": "as A100-SXM4-80GB, but 1 555 GB/s (data sheet)",
        }
    ),
    roofline=replace(_ROOFLINE, bandwidth=1555e9 * 0.9),
)
