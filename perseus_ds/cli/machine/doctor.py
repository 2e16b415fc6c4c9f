"""What is here, what the plugin would use, and what would go wrong.

Looks at GPUs, driver, the right to set clocks, clock grids, energy counters and the start-up hook,
and states which backend `device: automatic` takes and why. With --config it also reads a DeepSpeed
JSON, and where PERSEUS_CONFIG is set the file that it names. It names what in them would keep the
job from training with the plugin. Sets nothing, unless --calibrate is given. Then it also times
clock changes on every free GPU (no job holds it, no process uses it), and puts the clocks back.
Three quick checks of each GPU by reads alone: its clock is readable, its energy counter agrees with
its power, and what a read costs. Exit code 1 only if the configuration is refused or does not ask
for the plugin, or if --calibrate could measure no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path

from perseus_ds.cli.machine.diagnosis import Diagnosis, diagnose
from perseus_ds.cli.machine.local_gpus import SeenGpu
from perseus_ds.cli.machine.visible_gpus import VARIABLE
from perseus_ds.cli.output import DONE, REFUSED, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds doctor``."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="a DeepSpeed JSON to check as well")
    parser.add_argument(
        "--calibrate", action="store_true", help="set clocks of free GPUs for a second each, to time them"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Look, print."""
    found = diagnose(options.config, calibrate=options.calibrate)
    say(json.dumps(found.as_json(), indent=1) if options.json else render(found))
    return REFUSED if found.config_refused or found.nothing_timed else DONE


def render(found: Diagnosis) -> str:
    """Lay the diagnosis out, one topic per block, the trouble last."""
    return "\n".join([*_machine(found), "", *_backends(found), "", *_trouble(found)])


def _machine(found: Diagnosis) -> Iterator[str]:
    hook = found.hook
    yield f"hook     {'armed' if hook.armed else 'not armed'} ({hook.entry_point or 'no entry point'})"
    yield f"         {hook.python}"
    yield f"         torch {hook.torch_version or 'none'}, deepspeed {hook.deepspeed_version or 'none'}"
    yield f"rights   {found.missing_right or 'may set clocks'}"
    for gpu in found.gpus.gpus:
        yield from _gpu(gpu)
        if (check := found.checks.get(gpu.identity.index)) is not None:
            yield f"         {check.line}"
        if VARIABLE in os.environ:
            left = gpu.identity.index in found.visible
            yield f"         {'left' if left else 'hidden'} by {VARIABLE}={os.environ[VARIABLE]}"
        for timed in found.timed or ():
            if timed.index == gpu.identity.index:
                yield from (f"         {line}" for line in timed.lines())
    for refusal in found.gpus.refused:
        yield f"gpu      {refusal}"


def _gpu(gpu: SeenGpu) -> Iterator[str]:
    who, able = gpu.identity, gpu.capabilities
    yield f"gpu {who.index:<4} {who.name}, {who.uuid}, {who.pci_bus_id}, driver {who.driver}"
    yield f"         clocks {able.grid}; lock: {'yes' if able.can_lock else able.why_not}"
    memory = f"cannot be locked: {able.memory_why_not}" if able.memory_why_not else "can be locked"
    yield f"         memory clock {memory}"
    counter = "none" if able.counter_period_s is None else f"every {1e3 * able.counter_period_s:.0f} ms"
    yield f"         energy counter {counter}; a clock change takes {1e3 * able.switch_latency_s:.0f} ms"
    if gpu.power is not None and (stated := gpu.power.fields()):
        told = ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in stated.items())
        yield f"         set by operators: {told}"
    if gpu.achieved is not None:
        reasons = gpu.achieved.event_reasons.name or "none"
        yield f"         now at {gpu.achieved.clock_mhz} MHz, reasons: {reasons.lower().replace('|', ', ')}"


def _backends(found: Diagnosis) -> Iterator[str]:
    automatic = f"device: automatic takes {found.chosen}, {found.chosen_because}"
    asked = found.device != found.chosen
    yield f"device: {found.device}, as the configuration asks" if asked else automatic
    for answer in found.backends:
        if answer.refusal:
            yield f"  {answer.name:<10} no: {answer.refusal}"
        elif answer.name == found.device:
            yield f"  {answer.name:<10} taken"
        else:
            never = answer.priority is not None and answer.priority < 0
            yield f"  {answer.name:<10} {'only when asked for by name' if never else 'possible'}"


def _trouble(found: Diagnosis) -> Iterator[str]:
    if not found.findings:
        yield "nothing stands in the way of training with the plugin"
        return
    yield "what would go wrong in training"
    for finding in found.findings:
        yield f"  - {finding.what}"
        yield f"    do: {finding.remedy}"
