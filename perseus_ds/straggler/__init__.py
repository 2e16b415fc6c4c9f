"""Who is slow, and how slowly the others can wait: decided alike on every rank from the same numbers."""

from perseus_ds.straggler.announcing import Announced, notify
from perseus_ds.straggler.controller import Vigil
from perseus_ds.straggler.decision import Aim, Cause, Straggler, Verdict
from perseus_ds.straggler.frontier_index import Menu
from perseus_ds.straggler.notices import Heard, Notices
from perseus_ds.straggler.observation import Round

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
