"""The kernel level: which pair of clocks each kernel of an iteration wants, and what that saves.

trace    note what the instructions of a running job are made of
measure  replay each kernel class of a trace at every pair of clocks
plan     choose pairs: no time lost, some lost, least energy times time; by kernel, instruction, pass
show     print a plan again, or draw it
"""

from __future__ import annotations

import argparse
from importlib import import_module

_ACTIONS = {
    "trace": "run a job and note the kernels of its instructions",
    "measure": "time and energy of every kernel class at every pair of clocks",
    "plan": "the best pairs, and what each level, goal and switching latency saves",
    "show": "a plan as table, JSON or picture",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions of ``perseus-ds kernels``."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for name, summary in _ACTIONS.items():
        module = import_module(f"perseus_ds.cli.kernel_level.{name}")
        sub = actions.add_parser(
            name,
            help=summary,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(act=module.run)
        module.add_arguments(sub)


def run(options: argparse.Namespace) -> int:
    """Do what was asked for."""
    code: int = options.act(options)
    return code
