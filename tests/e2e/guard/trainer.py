"""Stands for a training process: takes a GPU, then asks for clocks at random until something ends it."""

import contextlib
import os
import random
import sys
import time

from perseus_ds.device.clock_change import calibrate
from perseus_ds.device.gpu import DeviceRequest, Gpu
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import DeviceError
from perseus_ds.guard.open import choose


def raise_as_scripts_do(_: Gpu) -> None:
    raise RuntimeError("as a training script may")


ENDS = {
    "raises": raise_as_scripts_do,
    "returns": lambda _: None,
    "closes": lambda gpu: gpu.close(),  # its own: the base class lets go of nothing
    "vanishes": lambda _: os._exit(1),
}


def main() -> None:
    seed, how = int(sys.argv[1]), sys.argv[2]
    device = sys.argv[3] if len(sys.argv) > 3 else "nvml"
    takes_risk = "unguarded" in sys.argv[4:]
    stated = int(os.environ["STATED_MHZ"]) if "STATED_MHZ" in os.environ else None
    with NvmlGpu(DeviceRequest("nvml", lock=False)) as first:
        uuid = first.identify().uuid  # as torch names it
    choice = choose(
        DeviceRequest(device, uuid=uuid, allow_unguarded_container=takes_risk, restore_clock_mhz=stated)
    )
    gpu = choice.gpu
    if not gpu.capabilities().can_lock:
        sys.stdout.write(f"0 {choice.reason} {gpu.capabilities().why_not}\n")
        sys.stdout.flush()
        time.sleep(60)
    sys.stdout.write(f"{gpu._guard.pid if gpu._guard else os.getpid()}\n")  # as numbered from here
    sys.stdout.flush()
    if how == "forks" and os.fork() == 0:
        time.sleep(60)  # a data loader's worker: holds copies of every descriptor
        os._exit(0)
    if how == "calibrates":
        with contextlib.suppress(DeviceError):
            calibrate(gpu)
    draw = random.Random(seed)
    held, until_s = [], time.monotonic() + 60
    while time.monotonic() < until_s:
        try:
            gpu.lock_clock(draw.choice(gpu.capabilities().clocks_mhz))
        except DeviceError:
            time.sleep(60)
        time.sleep(0 if how == "floods" else draw.random() * 0.01)
        if how == "exhausts":
            held.append(bytearray(b"x") * (4 << 20))  # touched, so that the kernel has to find it
        if how in ENDS and draw.random() < 0.05:
            ENDS[how](gpu)
            return


if __name__ == "__main__":
    main()
