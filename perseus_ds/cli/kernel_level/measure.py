"""Measure the kernel classes of a trace.

Each class is launched again and again at every pair of clocks, until power stands still, then for
three windows of two seconds. What would be chosen is measured a second time. A class that cannot be
replayed is named and stays at the default clocks. With --simulated the same is done on a simulated
GPU, in virtual time. A profile whose name ends in .csv is written as a table.

On a real GPU this sets its clocks through the guard: give it a GPU on which nothing else runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

from perseus_ds.cli.output import DONE, bar, remark, say
from perseus_ds.cli.quantity import count, positive, refuse_idle
from perseus_ds.device import DeviceRequest, Gpu, SimulatedGpu, SimulatedSettings
from perseus_ds.device.choose import choose
from perseus_ds.device.simulated import MODELS, VirtualTime
from perseus_ds.kernels import KernelClass, KernelProfile, read_trace, write_kernel_csv, write_kernel_profile
from perseus_ds.kernels.counter_window import Replay
from perseus_ds.kernels.measure import WindowPatience
from perseus_ds.kernels.measure_trace import CORE_CLOCKS, measure_trace
from perseus_ds.kernels.simulated_replay import simulated_replay

_NOISE = 0.005


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds kernels measure``."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="what `kernels trace` wrote")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="PROFILE", help=".json or .csv")
    parser.add_argument(
        "--simulated", choices=sorted(MODELS), metavar="GPU", help=f"one of {', '.join(MODELS)}"
    )
    parser.add_argument("--noise", type=positive, help="of the simulated GPU (default 0.005)")
    parser.add_argument("--seed", type=int, help="of the simulated GPU")
    parser.add_argument(
        "--core-clocks", type=count, default=CORE_CLOCKS, help="how many (default %(default)s)"
    )
    parser.add_argument("--window-s", type=positive, default=2.0, help="of each measurement (default 2)")
    parser.add_argument("--windows", type=count, default=3, help="for each pair (default 3)")


def run(options: argparse.Namespace) -> int:
    """Measure, write, state what was left out."""
    if options.simulated is None:
        refuse_idle("it belongs to --simulated", noise=options.noise, seed=options.seed)
    trace = read_trace(options.trace)
    gpu, find = _simulated(options) if options.simulated else _real()
    patience = WindowPatience(window_s=options.window_s, windows=options.windows)
    with gpu, bar("measuring") as progress:
        profile = measure_trace(
            gpu, trace, find, core_clocks=options.core_clocks, patience=patience, progress=progress
        )
    _write(profile, options.output)
    for kernel, reason in profile.left_out.items():
        remark(f"left at the default clocks: {kernel}: {reason}")
    if profile.why_not_memory is not None:
        remark(f"core clocks only: {profile.why_not_memory}")
    say(
        f"measured {len(profile.points)} of {len(trace.classes)} kernel classes at {len(profile.pairs)} "
        f"pairs of clocks on {profile.fingerprint['gpu']}: {options.output}"
    )
    return DONE


def _simulated(options: argparse.Namespace) -> tuple[Gpu, Callable[[KernelClass], Replay]]:
    noise = _NOISE if options.noise is None else options.noise
    settings = SimulatedSettings(
        gpu=options.simulated, seed=options.seed or 0, noise=noise, counter_noise=noise / 2
    )
    gpu = SimulatedGpu(settings, time=VirtualTime())
    return gpu, lambda kernel: simulated_replay(gpu, kernel)


def _real() -> tuple[Gpu, Callable[[KernelClass], Replay]]:
    replay = import_module("perseus_ds.runtime.tracing.replay")
    device, uuid = replay.cuda_device()
    choice = choose(DeviceRequest("auto", local_rank=0, uuid=uuid, lock=True))
    remark(f"measuring on {choice.gpu.identify().name} ({choice.reason})")
    return choice.gpu, partial(replay.replay_of, device=device)


def _write(profile: KernelProfile, path: Path) -> None:
    if path.suffix.lower() == ".csv":
        write_kernel_csv(profile, path)
    else:
        write_kernel_profile(profile, path)
