"""Who is slow, and how slowly the others can wait: decided alike on every rank from the same numbers."""

from perseus_ds.straggler.announcing import Announced, notify
from perseus_ds.straggler.menu import Menu
from perseus_ds.straggler.notices import Heard, Notices
from perseus_ds.straggler.round import Round
from perseus_ds.straggler.verdict import Aim, Cause, Straggler, Verdict
from perseus_ds.straggler.vigil import Vigil

__all__ = [
    "Aim",
    "Announced",
    "Cause",
    "Heard",
    "Menu",
    "Notices",
    "Round",
    "Straggler",
    "Verdict",
    "Vigil",
    "notify",
]
