"""Run a job and note what its instructions are made of.

What stands after `--` is the job as you would start it. After a few iterations, --iterations of
them run under PyTorch's profiler, at default clocks, and count for no measurement. The rest of the
job is as ever. On CUDA a launch is an operator with its kernels, else an operator that computes.
All ranks write what they saw to the run directory; TRACE joins it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from perseus_ds.cli.job.run import checked_environment, job_of
from perseus_ds.cli.output import DONE, remark, say
from perseus_ds.cli.quantity import count, refuse_idle
from perseus_ds.errors import ConfigError
from perseus_ds.kernels import read_trace, write_trace
from perseus_ds.kernels.trace import merged
from perseus_ds.run_directory import RunDirectory

ITERATIONS = 2
_BY_SIGNAL = 128  # as shells number an end by signal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds kernels trace``."""
    parser.usage = "%(prog)s [-h] --run-dir R -o TRACE [--iterations N] [-- JOB]"
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="TRACE", help="write it here")
    parser.add_argument("--iterations", type=count, metavar="N", help=f"how many (default {ITERATIONS})")
    parser.add_argument(
        "--run-dir", type=Path, required=True, metavar="R", help="in place of the block's run_dir"
    )
    parser.add_argument(
        "job", nargs=argparse.REMAINDER, metavar="JOB", help="without one: join what a job has left in R"
    )


def run(options: argparse.Namespace) -> int:
    """Run the job where there is one, join what its ranks traced."""
    if not options.job:
        refuse_idle("it belongs to a job after --", iterations=options.iterations)
    iterations = options.iterations or ITERATIONS
    os.environ["PERSEUS_TRACE_KERNELS"] = str(iterations)
    directory = RunDirectory(options.run_dir)
    if options.job:
        for old in directory.kernels.glob("rank*.json"):
            old.unlink()
        code = _traced(options.job, options.run_dir)
        if code != DONE:
            return code
    files = sorted(directory.kernels.glob("rank*.json"))
    if not files:
        raise ConfigError(
            f"{directory.kernels}: no rank has written a trace",
            hint=f"the job must train {iterations + 3} iterations or more",
        )
    trace = merged([read_trace(file) for file in files])
    write_trace(trace, options.output)
    overhead = "" if trace.overhead_pct is None else f"; traced iterations took {trace.overhead_pct:+.0f} %"
    say(
        f"{len(trace.sequences)} instructions, {trace.launches} launches per iteration of "
        f"{len(trace.classes)} kernel classes{overhead}: {options.output}"
    )
    if trace.shortfall:
        remark(f"{options.output}: {trace.shortfall}")
    return DONE


def _traced(words: list[str], run_dir: Path) -> int:
    """Run the job, with the block's ``run_dir`` replaced; return its exit code (128 + n after signal n)."""
    job = job_of(words)
    options = argparse.Namespace(config=None, mode=None, device=None, run_dir=str(run_dir))
    code = os.spawnvpe(os.P_WAIT, job[0], job, checked_environment(options, job))  # noqa: S606  # the user's own
    return code if code >= 0 else _BY_SIGNAL - code
