"""Files of the run directory are written beside the training where its disk is slow, or hangs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

_PATIENCE_S = 0.5


class LateWrites:
    """Writes in their order, by a thread that lives as long as there are any.

    On an ordinary disk a write is over when `write` returns. On one that does not answer the caller waits
    once, and not again before the disk has caught up.
    """

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._waiting: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def write(self, act: Callable[[], object]) -> bool:
        """Write, after all before it; return whether that is over.

        Raises:
            OSError: this write failed, or one before it that was not waited for.
        """
        with self._lock:
            self._waiting.append(act)
            idle = self._thread is None
            if idle:
                self._thread = threading.Thread(target=self._drain, name="perseus-disk", daemon=True)
                self._thread.start()
            thread = self._thread
        if idle and thread is not None:
            thread.join(self._patience_s)
        with self._lock:
            error, self._error = self._error, None
            over = self._thread is None
        if error is not None:
            raise error
        return over

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                act = self._waiting.popleft()
            try:
                act()
            except OSError as error:
                self._error = error
