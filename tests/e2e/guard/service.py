"""Runs guardd: ``service.py SOCKET FLOOR RULE...``; it writes ``ready`` when it listens."""

import logging
import sys
from pathlib import Path

from perseus_ds.guard.log import LOGGER
from perseus_ds.guard.policy import Policy
from perseus_ds.guard.rules import rule_of
from perseus_ds.guard.service import Service


class Ready(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.__dict__["event"] == "listening":
            sys.stdout.write("ready\n")
            sys.stdout.flush()


if __name__ == "__main__":
    LOGGER.addHandler(Ready())
    path, floor_mhz, rules = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    sys.exit(Service(path, Policy(tuple(map(rule_of, rules)), floor_mhz)).run())
