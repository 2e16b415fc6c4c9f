"""Moments of virtual time from rank to rank, over a gloo group of our own."""

from __future__ import annotations

import ctypes
import math
from collections import deque
from datetime import timedelta

import torch
import torch.distributed as dist

from perseus_ds.runtime.comm.control_group import control_group
from perseus_ds.runtime.comm.interfaces import Reach

_PATIENCE_S = 600.0
_GONE = math.nan


class TimeMessages:
    """Send without waiting, receive with it; a rank that leaves reports it once, and is not waited for again.

    ``lost`` are the ranks whose time is not known any more. A message stays alive until its receiver must
    have had it: ranks are never more than an iteration apart.
    """

    def __init__(self, name: str, reach: Reach) -> None:
        patience = timedelta(seconds=_PATIENCE_S)
        self._group = control_group(f"{name}/time", reach, patience=patience, at_once=True)
        self._mine = torch.zeros(1, dtype=torch.float64)
        self._sent: deque[list[tuple[dist.Work | None, torch.Tensor]]] = deque([[]], maxlen=3)
        self._sent_to: set[tuple[int, int]] = set()
        self.lost: set[int] = set()

    def iteration_begins(self) -> None:
        """Let go of what was sent two iterations ago."""
        self._sent.append([])

    def send(self, to: int, tag: int, moment_s: float) -> None:
        """Send a moment on its way; who is gone gets nothing."""
        if to in self.lost:
            return
        self._sent_to.add((to, tag))
        message = torch.tensor([moment_s], dtype=torch.float64)
        try:
            self._sent[-1].append((self._group.send([message], to, tag), message))
        except (RuntimeError, ValueError):
            self.lost.add(to)

    def receive(self, source: int, tag: int) -> float:
        """Wait for a moment; minus infinity from who is gone."""
        if source in self.lost:
            return -math.inf
        try:
            self._group.recv([self._mine], source, tag).wait()
        except (RuntimeError, ValueError):
            self.lost.add(source)
            return -math.inf
        moment_s = float(self._mine)
        if math.isnan(moment_s):
            self.lost.add(source)
            return -math.inf
        return moment_s

    def close(self) -> None:
        """Inform all that may wait for us that nothing more comes; they train on, and so do we.

        What is still under way is never destroyed: gloo would wait for it.
        """
        if self._sent_to and dist.is_initialized():
            for to, tag in sorted(self._sent_to):
                self.send(to, tag, _GONE)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        self._sent_to.clear()
