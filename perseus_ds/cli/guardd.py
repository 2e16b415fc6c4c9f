"""``perseus-ds guardd``: see `perseus_ds.guard.command`."""

from perseus_ds.guard.command import GUARDD_HELP, add_guardd_arguments, run_guardd

__doc__ = GUARDD_HELP
add_arguments, run = add_guardd_arguments, run_guardd
