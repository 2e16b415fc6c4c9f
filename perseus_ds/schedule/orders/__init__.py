"""Textbook orders: what one rank runs, as pure generators of a few lines, each with its source."""

from perseus_ds.schedule.orders.textbook import TEXTBOOK, textbook

__all__ = ["TEXTBOOK", "textbook"]
