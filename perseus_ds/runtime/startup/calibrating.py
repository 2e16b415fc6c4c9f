"""Once per run, before the first iteration: how long the GPUs of this job really take to change a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import cast

from perseus_ds.device import Calibration, Capabilities, Gpu, calibrate, measured
from perseus_ds.errors import DeviceError
from perseus_ds.runtime.comm.control_channel import ControlChannel
from perseus_ds.runtime.observe.event_log import EventLog

Answer = Calibration | DeviceError


def calibrated(gpu: Gpu, channel: ControlChannel, log: EventLog) -> tuple[Capabilities, Calibration | None]:
    """Measure rank 0's GPU alone, then all at once; return what this rank should reckon with. Collective.

    Calls of the GPUs of one node queue in the driver, so that a clock which all change at once comes later:
    ``together_s`` is the longest that any rank waited, and the latency that clocks are asked for ahead by.

    Raises:
        EngineError: a rank fell silent.

    Cost: about a second of the device's time, once.
    """
    able = gpu.capabilities()
    alone = cast("Answer | None", channel.broadcast(_answer(gpu) if channel.rank == 0 else None))
    everyone = (
        cast("list[Answer]", channel.gather(_answer(gpu, in_step=True))) if channel.size > 1 else [alone]
    )
    known = [one for one in everyone if isinstance(one, Calibration)]
    latencies_s = [one.switch_latency_s for one in known if one.switch_latency_s is not None]
    if not latencies_s or not isinstance(alone, Calibration):
        _log_declared(log, able, [alone, *everyone])
        return able, None
    found = _pooled(alone, known, together_s=max(latencies_s))
    _log_found(log, found)
    return _reckoned(able, found), found


def _reckoned(able: Capabilities, found: Calibration) -> Capabilities:
    """What was measured for what was declared; a counter seems slower, never quicker, to who looks rarely."""
    period_s = min(filter(None, (able.counter_period_s, found.counter_period_s)), default=None)
    latency_s = found.together_s or able.switch_latency_s
    return replace(measured(able, found), switch_latency_s=latency_s, counter_period_s=period_s)


def _answer(gpu: Gpu, *, in_step: bool = False) -> Answer:
    try:
        return calibrate(gpu, in_step=in_step)
    except DeviceError as error:
        return error


def _pooled(alone: Calibration, known: Sequence[Calibration], *, together_s: float) -> Calibration:
    periods_s = [one.counter_period_s for one in known if one.counter_period_s is not None]
    return replace(
        alone,
        together_s=together_s,
        counter_period_s=median(periods_s) if periods_s else None,
        unreached=alone.unreached + sum(one.unreached for one in known),
        idle=alone.idle + sum(one.idle for one in known),
    )


def _log_found(log: EventLog, found: Calibration) -> None:
    log.event(
        "calibrated",
        f"a clock change takes {_ms(found.switch_latency_s)} on one GPU and {_ms(found.together_s)} when all "
        "change at once",
        call_s=found.call_s,
        up_s=found.up_s,
        down_s=found.down_s,
        together_s=found.together_s,
        counter_period_s=found.counter_period_s,
        unreached=found.unreached,
        idle=found.idle,
        memory_why_not=found.memory_why_not,
    )


def _log_declared(log: EventLog, able: Capabilities, answers: Sequence[Answer | None]) -> None:
    why = _why_not([one for one in answers if one is not None])
    latency_s = able.switch_latency_s
    log.event(
        "calibrated",
        f"how long a clock change takes could not be measured ({why}): reckoning with {_ms(latency_s)}",
        declared_s=latency_s,
        why=why,
    )


def _why_not(answers: Sequence[Answer]) -> str:
    """Say why no latency was found: a refusal, an idle device, one that was held back, or a busy host."""
    errors = [str(one) for one in answers if isinstance(one, DeviceError)]
    known = [one for one in answers if isinstance(one, Calibration)]
    if errors:
        return errors[0]
    if any(one.idle for one in known):
        return "the GPU is idle, and an idle one clocks down by itself"
    return "a clock was not reached" if any(one.unreached for one in known) else "this host looked too rarely"


def _ms(duration_s: float | None) -> str:
    return "an unknown time" if duration_s is None else f"{1e3 * duration_s:.3g} ms"
