"""The program: all commands by name, and the one that is called; a refusal is one line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

import perseus_ds
from perseus_ds.cli.output import DONE, INTERRUPTED, REFUSED, log_stderr
from perseus_ds.errors import ConfigError, PerseusError

_REMOVED = (
    ("plan", "--chunks --group --waits --split --reserve-pct --timelines", "write `--set {key}=VALUE`"),
    ("plan", "--switch-latency-ms --changes-per-s --gpus-per-node", "write `--set {key}=VALUE`"),
    ("plan", "--node-changes-per-s", "write `--set {key}=VALUE`"),
    ("plan", "--verify", "`perseus-ds verify PLAN` checks every plan of the file"),
    ("plan", "--loads", "a job's profile knows how loads vary; `--set reserve_pct=PCT` keeps a reserve"),
    ("plan", "--wait-power-w", "write a waiting GPU's watts by clock into profile.json, under `blocking_w`"),
    ("plan", "--feedback", "plans no longer correct themselves; `--set reserve_pct=PCT` keeps a reserve"),
    ("plan", "--dwell-ms", "`--set changes_per_s=N` bounds how often a clock changes, and saves more"),
    ("plan", "--max-swing", "plans are not chosen by how their power changes; `show --power` has `swing_w`"),
    (
        "hook",
        "",
        "`doctor` states whether the start-up hook is in place; `doctor --json` has it under `hook`",
    ),
    ("convert", "", "`show PROFILE.json --format csv` prints the CSV, `show PROFILE.csv --format json` ours"),
    (
        "simulate",
        "--gpus-per-node --noise-pct --seed --work --loads",
        "write `{key}: ...` into a file{scenario}",
    ),
    ("simulate", "--call-ms --settle-ms --queue-ms --stall-ms", "write `{key}: ...` into a file{scenario}"),
    ("simulate", "--unanswered", "write `answered: false` into a file{scenario}"),
    ("simulate", "--clocks", "edit the clocks in PLAN, or plan with other keys of the block"),
    ("simulate", "-o --output", "`simulate --json` has every figure"),
    ("kernels", "--picture", "`kernels show --json` has every figure"),
    ("kernels", "--noise", "the simulated GPU is measured with 0.5 % of noise"),
    ("kernels", "--seed", "the simulated GPU has one seed"),
    ("kernels", "--dwell-ms", "`--latency-ms` is the least time between two changes as well"),
    ("show", "--beside", "write `--straggler S`"),
    ("show", "--max-swing", "choose rows of `show --power` by their `swing_w`"),
    ("notify", "--per", "a power cap is for the whole job: multiply watts of one pipeline by their number"),
    ("notify", "--node", "give each job a `--power-cap` of its own"),
    ("notify", "--no-power-cap", "`--clear` ends all notices"),
    ("notify", "--for", "name its end by `--until`"),
    ("notify", "--ramp", "lower the cap step by step"),
    ("notify", "--reason", "leave it out: the journal has the cap itself"),
    ("doctor", "--first-hour", "`doctor` makes three quick checks; `scripts/bench/real_gpu` has the others"),
    ("doctor", "-o --output", "redirect its output"),
)
REMOVED_OPTIONS = {
    f"{command} {option}".strip(): remedy.format(
        key=option.lstrip("-").replace("-", "_"), scenario=", and give it by `--scenario`"
    )
    for command, options, remedy in _REMOVED
    for option in options.split() or [""]
}
"""Options and commands of earlier releases, with the remedy."""


Run = Callable[[argparse.Namespace], int]
COMMANDS = {
    "doctor": "what is here, what the plugin would use, and what would go wrong",
    "run": "start a training job with the plugin's flags set",
    "plan": "turn a profile into a frontier of plans",
    "show": "one plan of a frontier, instruction by instruction; or a profile",
    "verify": "check a plan file by code apart from the planner",
    "simulate": "run a plan in a job of any size, on emulated GPUs in virtual time",
    "report": "write the page and the pictures of a run directory",
    "notify": "announce a straggler or a power cap to a running job",
    "kernels": "a pair of clocks for every kernel: trace, measure, plan, show",
    "clocks": "put default clocks back",
    "guardd": "the privileged node service: clocks for jobs without the right to set them",
}
"""Every command, a module of this package with ``add_arguments`` and ``run``, and its line in ``--help``."""
_EPILOG = "Exit codes: 0 done, 1 refused with a reason, 2 wrong usage. `perseus-ds COMMAND --help` lists all."


def parse(arguments: Sequence[str]) -> tuple[Run, argparse.Namespace]:
    """Read the command line.

    Raises:
        ConfigError: a command or an option that was removed.
        SystemExit: wrong usage (2), or ``--help`` and ``--version`` (0).
    """
    called = next((word for word in arguments if not word.startswith("-")), "")
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for name in (called, *(f"{called} {word.partition('=')[0]}" for word in own)):
        if name in REMOVED_OPTIONS:
            raise ConfigError(f"`{name}` was removed", hint=REMOVED_OPTIONS[name])
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
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter)
        if name == called:
            module = import_module(f"perseus_ds.cli.{name}")
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
        reason = error.message.splitlines()[0] + hint
    except BrokenPipeError:
        # The reader has gone (`| head`): nothing to say, and nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        name = error.filename2 or error.filename  # of a file that is replaced the first is a temporary one
        reason = f"{name}: {error.strerror}" if name else str(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    log_stderr(reason)
    return REFUSED
