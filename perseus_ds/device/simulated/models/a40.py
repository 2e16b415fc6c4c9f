"""NVIDIA A40: a GDDR6 Ampere whose top clocks cost far more than they bring."""

from __future__ import annotations

from types import MappingProxyType

from perseus_ds.device.simulated.model import GpuModel, Roofline, grid_mhz

A40 = GpuModel(
    key="a40",
    name="NVIDIA A40",
    clocks_mhz=grid_mhz(210, 1740),
    memory_clocks_mhz=(7251, 405),
    voltage_squared=((210, 1.0), (1080, 1.0), (1200, 1.1), (1350, 1.3), (1500, 1.6), (1740, 2.2)),
    blocking_w=((210, 52.0), (900, 55.0), (1200, 59.0), (1500, 63.5), (1740, 70.38)),
    dynamic_w=290.0,
    power_cap_w=300.0,
    leakage_w_per_k=0.30,
    reference_c=60.0,
    ambient_c=30.0,
    thermal_k_per_w=0.11,
    thermal_s=40.0,
    call_s=0.010,
    settle_s=0.027,
    counter_period_s=0.100,
    counter_window_s=0.100,
    sources=MappingProxyType(
        {
            "clocks_mhz": "210 to 1740 MHz in steps of 15: nvmlDeviceGetSupportedGraphicsClocks",
            "memory_clocks_mhz": "assumed from nvidia-smi output on such boards",
            "voltage_squared": "assumed: the shape of A100's, stretched",
            "blocking_w": "70.38 W at the maximum clock: Perseus artifact; the shape below is assumed",
            "dynamic_w": "assumed: dense kernels are throttled under 300 W",
            "power_cap_w": "NVIDIA A40 data sheet: 300 W",
            "leakage_w_per_k": "assumed: as A100",
            "reference_c": "assumed",
            "ambient_c": "assumed",
            "thermal_k_per_w": "assumed: passively cooled, warmer than A100",
            "thermal_s": "assumed",
            "call_s": "assumed: as A100",
            "settle_s": "assumed: as A100",
            "counter_period_s": "Yang, Adamek, Armour, SC'24 (arXiv 2312.02741): about 100 ms",
            "counter_window_s": "assumed: the whole period",
            "roofline": "NVIDIA A40 data sheet: 149.7 TFLOPS dense half precision, 696 GB/s, 10 752 cores; "
            "efficiencies and the power of memory and traffic assumed",
        }
    ),
    roofline=Roofline(
        processors=84,
        product_flops=149.7e12,
        product_efficiency=0.7,
        lane_instructions=10752 * 1.74e9,
        bandwidth=696e9 * 0.9,
        write_efficiency=0.7,
        memory_w=((405, 3.0), (7251, 26.0)),
        traffic_w=15.0,
        stalled_activity=0.4,
        lane_intensity=0.65,
    ),
)
