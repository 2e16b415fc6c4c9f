"""The program: parse, run one command, turn a refusal into one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from perseus_ds.cli.command_line import parse
from perseus_ds.cli.output import DONE, INTERRUPTED, REFUSED, remark
from perseus_ds.errors import PerseusError


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
    remark(reason)
    return REFUSED
