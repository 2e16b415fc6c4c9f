"""Whether training jobs of this Python will load the plugin.

PyTorch calls the entry points of the group torch.backends at the end of `import torch`; ours waits
there for DeepSpeed's pipeline engine. `perseus-ds hook status` states whether that will happen in this
Python and, if not, why and what to do. Exit code 1 if the hook is not armed.
"""

from __future__ import annotations

import argparse
import json

from perseus_ds.cli.machine.hook_status import HookStatus, hook_status
from perseus_ds.cli.output import DONE, REFUSED, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds hook``."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    status = actions.add_parser(
        "status",
        help="armed or not, why, and what to do",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    status.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print the status."""
    status = hook_status()
    say(json.dumps(status.as_json(), indent=1) if options.json else render(status))
    return DONE if status.armed else REFUSED


def render(status: HookStatus) -> str:
    """Lay the status out, the answer first."""
    answer = "armed" if status.armed else f"not armed: {status.reason}\n  do: {status.remedy}"
    return "\n".join(
        [
            f"start-up hook: {answer}",
            f"  python       {status.python}",
            f"  entry point  {status.entry_point or 'none'}",
            f"  autoload     {'off' if status.autoload == '0' else 'on'}",
            f"  torch        {status.torch_version or 'not installed'}",
            f"  deepspeed    {status.deepspeed_version or 'not installed'}",
        ]
    )
