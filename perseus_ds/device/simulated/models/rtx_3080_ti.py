"""NVIDIA GeForce RTX 3080 Ti: a GDDR6X Ampere with memory clocks to choose from."""

from __future__ import annotations

from types import MappingProxyType

from perseus_ds.device.simulated.model import GpuModel, Roofline, grid_mhz

_FIT = (
    "assumed; set so that the kinds of kernels of Spaan, Chen, Varbanescu (arXiv 2601.08539, table 1) save "
    "what they were measured to save: matrix products 15 % and 2.5 % of time at memory 5001 MHz, memory-"
    "bound kernels 30 % at their best core clock"
)
_PAGE = "NVIDIA GeForce RTX 3080 Ti specifications: 10 240 cores at 1 665 MHz, 912 GB/s, 350 W"
_BOOST = 1890 / 1665

RTX_3080_TI = GpuModel(
    key="rtx-3080-ti",
    name="NVIDIA GeForce RTX 3080 Ti",
    clocks_mhz=grid_mhz(210, 1890),
    memory_clocks_mhz=(9501, 9251, 5001, 810, 405),
    voltage_squared=(
        (210, 1.0),
        (1050, 1.0),
        (1260, 1.1),
        (1470, 1.32),
        (1680, 1.65),
        (1785, 1.95),
        (1890, 2.3),
    ),
    blocking_w=((210, 146.0), (1050, 150.0), (1260, 154.0), (1470, 159.0), (1680, 166.0), (1890, 180.0)),
    dynamic_w=185.0,
    power_cap_w=350.0,
    leakage_w_per_k=0.30,
    reference_c=60.0,
    ambient_c=30.0,
    thermal_k_per_w=0.10,
    thermal_s=40.0,
    call_s=0.010,
    settle_s=0.027,
    counter_period_s=0.100,
    counter_window_s=0.100,
    sources=MappingProxyType(
        {
            "clocks_mhz": "210 to 2100 MHz in Spaan et al., arXiv 2601.08539; their products are 10 % slower "
            "at 1680 MHz than by default, so 1890 is the highest that its voltage allows; steps of 15",
            "memory_clocks_mhz": "405, 810, 5001, 9251, 9501 MHz: Spaan et al., arXiv 2601.08539, section 4",
            "voltage_squared": "assumed: the shape of A100's, stretched to 2100 MHz",
            "blocking_w": _FIT,
            "dynamic_w": _FIT,
            "power_cap_w": _PAGE,
            "leakage_w_per_k": "assumed: as A100",
            "reference_c": "assumed",
            "ambient_c": "assumed",
            "thermal_k_per_w": "assumed: 65 degrees C at 350 W",
            "thermal_s": "assumed",
            "call_s": "assumed: as A100",
            "settle_s": "assumed: as A100",
            "counter_period_s": "Yang, Adamek, Armour, SC'24 (arXiv 2312.02741): about 100 ms",
            "counter_window_s": "assumed: the whole period",
            "roofline": _PAGE + "; half of the whitepaper's dense rate for half precision with float "
            "accumulation (GeForce); memory power: " + _FIT,
        }
    ),
    roofline=Roofline(
        processors=80,
        product_flops=68.2e12 * _BOOST,
        product_efficiency=0.8,
        lane_instructions=10240 * 1.89e9,
        bandwidth=912e9 * 0.92,
        write_efficiency=0.55,
        memory_w=((405, 4.0), (810, 8.0), (5001, 36.0), (9251, 91.5), (9501, 100.0)),
        traffic_w=28.0,
        stalled_activity=0.45,
        lane_intensity=0.75,
    ),
)
