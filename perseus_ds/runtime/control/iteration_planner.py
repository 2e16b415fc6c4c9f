"""The process that plans iterations by their loads, and the thread that asks it, beside the training."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from queue import Empty, SimpleQueue

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan.following import READY, AnswerFrame, QuestionFrame, Setup

_MOST_BEHIND = 4  # questions without an answer: more wait for nothing


class IterationPlanner:
    """One process of ``python -m perseus_ds.plan.following``, on the first rank of a replica.

    A process and not a thread: the solver would hold the interpreter. It ends when this one does, for its
    input ends. ``error`` is why it is over, where that was not asked for.
    """

    def __init__(self, setup: Setup) -> None:
        self._frame = AnswerFrame(setup.plans, setup.marks)
        self._asked: SimpleQueue[QuestionFrame | None] = SimpleQueue()
        self._answers: SimpleQueue[NDArray[np.float64]] = SimpleQueue()
        self._behind = 1  # it answers once when it is ready
        self._closed = False
        self.error: str | None = None
        threading.Thread(target=self._talk, args=(setup,), daemon=True, name="perseus plans").start()

    def wait_until_ready(self, patience_s: float) -> None:
        """Wait until questions are answered at once, or never will be."""
        self.answer(READY, patience_s=patience_s)

    def ask(self, question: QuestionFrame) -> bool:
        """Ask, unless too much is asked already; return whether an answer is to come."""
        if self._closed or self.error is not None or self._behind >= _MOST_BEHIND:
            return False
        self._behind += 1
        self._asked.put(question)
        return True

    def answer(self, number: int, *, patience_s: float = 0.0) -> NDArray[np.float64] | None:
        """Return the answer to a question, once; earlier ones are dropped. None until it is there."""
        until_s = time.monotonic() + patience_s
        while True:
            try:
                found = self._answers.get(timeout=max(0.0, until_s - time.monotonic()))
            except Empty:
                return None
            self._behind -= 1
            if int(found[0]) == number:
                return found
            if self.error is not None:
                return None

    def close(self) -> None:
        """End the process; safe to call twice."""
        self._closed = True
        self._asked.put(None)

    def _talk(self, setup: Setup) -> None:
        command = [sys.executable, "-P", "-m", "perseus_ds.plan.following"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        try:
            with subprocess.Popen(  # noqa: S603  # our own module
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
            ) as process:
                try:
                    self._converse(process, setup)
                finally:
                    process.kill()
        except OSError as error:
            self.error = self.error or str(error)

    def _converse(self, process: subprocess.Popen[bytes], setup: Setup) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        size = 8 * self._frame.numbers
        try:
            pickle.dump(setup, process.stdin)
            process.stdin.flush()
            while len(answer := process.stdout.read(size)) == size:
                self._answers.put(np.frombuffer(answer))
                if (question := self._asked.get()) is None:
                    return
                process.stdin.write(question.packed().tobytes())
                process.stdin.flush()
        except BrokenPipeError:
            pass
        said = process.stderr.read().decode(errors="replace").strip().splitlines()
        self.error = said[-1] if said else f"exit code {process.wait()}"
        self._answers.put(self._frame.none(-1))
