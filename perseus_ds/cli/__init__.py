"""The command ``perseus-ds``: one file per command, loaded only when it is called."""

from perseus_ds.cli.main import main

__all__ = ["main"]
