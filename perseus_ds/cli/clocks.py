"""``perseus-ds clocks``: see `perseus_ds.guard.command`."""

from perseus_ds.guard.command import CLOCKS_HELP, add_clocks_arguments, run_clocks

__doc__ = CLOCKS_HELP
add_arguments, run = add_clocks_arguments, run_clocks
