"""The program: all commands by name, and the one that is called; a refusal is one line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

import perseus_ds
from perseus_ds.cli.output import DONE, INTERRUPTED, REFUSED, log_stderr
from perseus_ds.cli.removed import refuse_removed
from perseus_ds.errors import PerseusError

Run = Callable[[argparse.Namespace], int]


@dataclass(frozen=True, slots=True)
class Command:
    """A module of this package with ``add_arguments`` and ``run``, and its line in ``--help``."""

    module: str
    summary: str


COMMANDS = {
    "doctor": Command("doctor", "what is here, what the plugin would use, and what would go wrong"),
    "run": Command("run", "start a training job with the plugin's flags set"),
    "plan": Command("plan", "turn a profile into a frontier of plans"),
    "show": Command("show", "one plan of a frontier, instruction by instruction; or a profile"),
    "verify": Command("verify", "check a plan file by code apart from the planner"),
    "simulate": Command("simulate", "run a plan in a job of any size, on emulated GPUs in virtual time"),
    "report": Command("report", "write the page and the pictures of a run directory"),
    "notify": Command("notify", "announce a straggler or a power cap to a running job"),
    "kernels": Command("kernels", "a pair of clocks for every kernel: trace, measure, plan, show"),
    "clocks": Command("clocks", "put default clocks back"),
    "guardd": Command("guardd", "the privileged node service: clocks for jobs without the right to set them"),
}

_EPILOG = "Exit codes: 0 done, 1 refused with a reason, 2 wrong usage. `perseus-ds COMMAND --help` lists all."


def parse(arguments: Sequence[str]) -> tuple[Run, argparse.Namespace]:
    """Read the command line.

    Raises:
        ConfigError: a command or an option that was removed.
        SystemExit: wrong usage (2), or ``--help`` and ``--version`` (0).
    """
    called = next((word for word in arguments if not word.startswith("-")), "")
    refuse_removed(called, arguments)
    options = parser(called).parse_args(arguments)
    run: Run = options.run
    return run, options


def parser(called: str) -> argparse.ArgumentParser:
    """Build the parser with the arguments of one command; the others stand there by name."""
    top = argparse.ArgumentParser(
        prog="perseus-ds",
        description="Plan GPU clocks for pipeline training: the same speed, less energy.",
        epilog=_EPILOG,
    )
    top.add_argument("--version", action="version", version=f"perseus-ds {perseus_ds.__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name, help=command.summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == called:
            module = import_module(f"perseus_ds.cli.{command.module}")
            sub.description = module.__doc__
            sub.set_defaults(run=module.run)
            module.add_arguments(sub)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Raises:
        SystemExit: by argparse; 2 for wrong usage, 0 after ``--help`` and ``--version``.
    """
    try:
        command, options = parse(sys.argv[1:] if argv is None else list(argv))
        return command(options)
    except PerseusError as error:
        hint = "" if error.hint is None else f" ({error.hint})"
        return _refuse(error.message.splitlines()[0] + hint)
    except BrokenPipeError:
        # The reader has gone (`| head`): nothing to say, and nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except KeyboardInterrupt:
        return INTERRUPTED


def _refuse(reason: str) -> int:
    log_stderr(reason)
    return REFUSED
