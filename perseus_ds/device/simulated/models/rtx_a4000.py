"""NVIDIA RTX A4000: a GDDR6 Ampere under a tight power cap, on which the paper checked its findings."""

from __future__ import annotations

from types import MappingProxyType

from perseus_ds.device.simulated.model import GpuModel, Roofline, grid_mhz

_PAGE = "NVIDIA RTX A4000 data sheet: 6 144 cores, 448 GB/s, 19.2 TFLOPS single precision, 140 W"
_SHAPE = "assumed: RTX 3080 Ti's, scaled to 140 W"

RTX_A4000 = GpuModel(
    key="rtx-a4000",
    name="NVIDIA RTX A4000",
    clocks_mhz=grid_mhz(210, 2100),
    memory_clocks_mhz=(7001, 6501, 5001, 810, 405),
    voltage_squared=(
        (210, 1.0),
        (1050, 1.0),
        (1260, 1.08),
        (1470, 1.25),
        (1680, 1.5),
        (1890, 1.95),
        (2100, 2.5),
    ),
    blocking_w=((210, 38.0), (840, 40.0), (1260, 42.0), (1680, 46.0), (2100, 53.0)),
    dynamic_w=100.0,
    power_cap_w=140.0,
    leakage_w_per_k=0.15,
    reference_c=60.0,
    ambient_c=30.0,
    thermal_k_per_w=0.25,
    thermal_s=40.0,
    call_s=0.010,
    settle_s=0.027,
    counter_period_s=0.100,
    counter_window_s=0.100,
    sources=MappingProxyType(
        {
            "clocks_mhz": "to 2100 MHz in steps of 15 assumed from nvidia-smi output on such boards",
            "memory_clocks_mhz": "7001 MHz: data sheet (14 Gbit/s); those below assumed",
            "voltage_squared": "assumed: as RTX 3080 Ti",
            "blocking_w": _SHAPE,
            "dynamic_w": "assumed: dense kernels are throttled a little under 140 W",
            "power_cap_w": _PAGE,
            "leakage_w_per_k": _SHAPE,
            "reference_c": "assumed",
            "ambient_c": "assumed",
            "thermal_k_per_w": "assumed: 65 degrees C at 140 W, one slot",
            "thermal_s": "assumed",
            "call_s": "assumed: as A100",
            "settle_s": "assumed: as A100",
            "counter_period_s": "Yang, Adamek, Armour, SC'24 (arXiv 2312.02741): about 100 ms",
            "counter_window_s": "assumed: the whole period",
            "roofline": _PAGE + "; 76.7 TFLOPS dense half precision at 1 560 MHz; memory power: " + _SHAPE,
        }
    ),
    roofline=Roofline(
        processors=48,
        product_flops=76.7e12 * 2100 / 1560,
        product_efficiency=0.75,
        lane_instructions=6144 * 2.1e9,
        bandwidth=448e9 * 0.92,
        write_efficiency=0.6,
        memory_w=((405, 2.0), (810, 3.0), (5001, 12.0), (6501, 17.0), (7001, 19.0)),
        traffic_w=9.0,
        stalled_activity=0.45,
        lane_intensity=0.75,
    ),
)
