"""Inform a running job about a straggler that is known in advance, or have it hold a power ceiling.

A straggler: the others of its pipelines (data-parallel replicas) then run as slowly as that one, at the
plan of least energy for it. A slowdown of 1 ends it.

A ceiling: the job runs the fastest plan whose mean power stays below it. Where both are set the slower
plan runs. The job follows within two iterations, and believes the run directory's owner and root.

A scheduler can also write the files directly: write a temporary file, then rename it. The file is
RUN_DIR/notices/pipeline_P.json with {"slowdown": X}, or RUN_DIR/notices/power_cap.json with
{"power_cap_w": W}. Delete the file to end the notice.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path

from perseus_ds.cli.output import DONE, remark, say
from perseus_ds.cli.quantity import positive
from perseus_ds.errors import PerseusError
from perseus_ds.straggler.announcement.announcing import Announced, notify
from perseus_ds.straggler.announcement.resiliency import notify_host
from perseus_ds.straggler.ceiling.node_ceilings import share_power
from perseus_ds.straggler.ceiling.power_cap import PowerCap
from perseus_ds.straggler.ceiling.setting import CapSet, set_power_cap

_USAGE = """perseus-ds notify [-h] [--pipeline P | --host HOST] [--per {pipeline,job}]
                         [--until TIME | --for MIN] [--ramp W/S] [--reason TEXT] [--json]
                         (--slowdown X | --power-cap W | --node HOST=W | --no-power-cap)
                         RUN_DIR [RUN_DIR ...]"""  # argparse breaks no line between alternatives


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds notify``."""
    parser.usage = _USAGE
    parser.add_argument(
        "run_dirs",
        type=Path,
        nargs="+",
        metavar="RUN_DIR",
        help="run_dir of the running job; several with --node",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--slowdown", metavar="X", help="1.2: its iterations take 20 %% longer; 1 ends it")
    what.add_argument("--power-cap", metavar="W", help="mean power that each pipeline may take, in watts")
    what.add_argument(
        "--node",
        action="append",
        metavar="HOST=W",
        help="mean power that all these jobs' GPUs on a host may take together; once for each host",
    )
    what.add_argument("--no-power-cap", action="store_true", help="lift the ceiling")
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--pipeline", metavar="P", help="which data-parallel replica is slow, counted from 0")
    who.add_argument("--host", metavar="HOST", help="every pipeline with a GPU on this host is slow")
    parser.add_argument(
        "--per", choices=["pipeline", "job"], default="pipeline", help="what the ceiling is for"
    )
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--until", metavar="TIME", help="18:00 or 2030-01-31T18:00: when the ceiling is over")
    end.add_argument(
        "--for", dest="minutes", type=positive, metavar="MIN", help="the same in minutes from now"
    )
    parser.add_argument(
        "--ramp", type=positive, metavar="W/S", help="change power by so much a second, there and back"
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for whoever reads the file")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")


def run(options: argparse.Namespace) -> int:
    """Leave or withdraw the notice, and report it."""
    if options.node is None and options.power_cap is not None and len(options.run_dirs) > 1:
        raise PerseusError("one RUN_DIR has one ceiling: several share those of --node")
    if options.slowdown is not None:
        return _announce(options)
    if options.pipeline is not None or options.host is not None:
        raise PerseusError("--pipeline and --host belong to --slowdown: a ceiling is for every pipeline")
    cap = _cap(options)
    if options.node is not None:
        return _share(options, cap)
    for run_dir in options.run_dirs:
        done = set_power_cap(run_dir, cap)
        say(json.dumps(_cap_as_json(done)) if options.json else _cap_in_words(done))
    return DONE


def _share(options: argparse.Namespace, like: PowerCap) -> int:
    shared = share_power(options.run_dirs, _nodes(options.node), like)
    if options.json:
        jobs = [asdict(one) | {"run_dir": str(one.run_dir)} for one in shared.jobs]
        say(json.dumps({"jobs": jobs, "node_w": dict(shared.node_w), "over": list(shared.over)}))
        return DONE
    for one in shared.jobs:
        later = (
            ""
            if one.start_s is None
            else f", from {datetime.fromtimestamp(one.start_s).astimezone():%H:%M:%S} on"
        )
        say(f"{one.run_dir}: {one.power_cap_w:.0f} W for the job, {one.slowdown_pct:.1f} % slower{later}")
    for node, watts in shared.node_w.items():
        held = "cannot be held, the slowest plans run" if node in shared.over else "held"
        say(f"{node}: {watts:.0f} W by these plans, {held}")
    return DONE


def _nodes(words: Sequence[str]) -> dict[str, float]:
    """Read HOST=W, each host once."""
    caps_w: dict[str, float] = {}
    for word in words:
        host, _, watts = word.rpartition("=")
        if not host or host in caps_w:
            raise PerseusError(f"--node {word!r:.80} is not HOST=W, each host once")
        caps_w[host] = _number(watts, "power cap")
    return caps_w


def _announce(options: argparse.Namespace) -> int:
    if options.pipeline is None and options.host is None:
        raise PerseusError("--slowdown needs --pipeline or --host: which one is slow")
    if len(options.run_dirs) > 1:
        raise PerseusError("--slowdown is for one RUN_DIR")
    slowdown = _number(options.slowdown, "slowdown")
    if options.host is not None:
        slow = notify_host(options.run_dirs[0], options.host, slowdown=slowdown, reason=options.reason)
        told = (
            json.dumps([_as_json(one) for one in slow]) if options.json else "\n".join(map(_in_words, slow))
        )
        say(told)
        return DONE
    pipeline = _whole(options.pipeline)
    done = notify(options.run_dirs[0], pipeline=pipeline, slowdown=slowdown, reason=options.reason)
    if done.pipelines is None:
        remark("the journal does not record how many pipelines the job has: the number was not checked")
    say(json.dumps(_as_json(done)) if options.json else _in_words(done))
    return DONE


def _cap(options: argparse.Namespace) -> PowerCap:
    until_s = None
    if options.minutes is not None:
        until_s = time.time() + 60.0 * options.minutes
    elif options.until is not None:
        until_s = _until_s(options.until)
    return PowerCap(
        None if options.power_cap is None else _number(options.power_cap, "power cap"),
        options.per,
        until_s=until_s,
        ramp_w_per_s=options.ramp or 0.0,
        reason=options.reason,
    )


def _cap_in_words(done: CapSet) -> str:
    cap = done.cap
    if cap.power_cap_w is None:
        return "no power ceiling is set here any more"
    whose = "the job" if cap.per == "job" else "each pipeline"
    until = ""
    if cap.until_s is not None:
        until = f" until {datetime.fromtimestamp(cap.until_s).astimezone():%Y-%m-%d %H:%M}"
    cost = f": {done.told}" if done.told else ""
    return f"{cap.power_cap_w:g} W for {whose}{until}{cost} ({done.path})"


def _cap_as_json(done: CapSet) -> dict[str, object]:
    return {
        "power_cap_w": done.cap.power_cap_w,
        "per": done.cap.per,
        "until_s": done.cap.until_s,
        "slowdown_pct": done.slowdown_pct,
        "power_w": done.power_w,
        "notice": None if done.cap.power_cap_w is None else str(done.path),
    }


def _until_s(text: str) -> float:
    """Read a time of day (the next one), or a date with one; in this host's time zone where it names none."""
    now = datetime.now().astimezone()
    try:
        at = datetime.strptime(text, "%H:%M")  # noqa: DTZ007  # a time of day
    except ValueError:
        pass
    else:
        today = now.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
        return (today if today > now else today + timedelta(days=1)).timestamp()
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        raise PerseusError(
            f"until {text!r:.40} is not a time", hint="like 18:00, or 2030-01-31T18:00"
        ) from None


def _in_words(done: Announced) -> str:
    if done.slowdown > 1.0:
        return f"pipeline {done.pipeline} is announced to be {done.slowdown:g} times slower: {done.path}"
    return f"pipeline {done.pipeline} is not announced to be slow any more"


def _as_json(done: Announced) -> dict[str, object]:
    return {
        "pipeline": done.pipeline,
        "slowdown": done.slowdown,
        "notice": str(done.path) if done.slowdown > 1.0 else None,
        "pipelines": done.pipelines,
    }


def _whole(text: str) -> int:
    """Read a pipeline's number; a wrong one is refused (exit code 1) as an unknown one is."""
    try:
        return int(text)
    except ValueError:
        raise PerseusError(f"pipeline {text!r:.40} is not a whole number from 0 on") from None


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise PerseusError(f"{what} {text!r:.40} is not a number") from None
