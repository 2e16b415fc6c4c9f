"""Runs guardd: ``service.py SOCKET FLOOR RULE...``."""

import sys
from pathlib import Path

from perseus_ds.guard.policy import Policy
from perseus_ds.guard.rules import rule_of
from perseus_ds.guard.service import Service

if __name__ == "__main__":
    path, floor_mhz, rules = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    service = Service(path, Policy(tuple(map(rule_of, rules)), floor_mhz))
    service.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.exit(service.run())
