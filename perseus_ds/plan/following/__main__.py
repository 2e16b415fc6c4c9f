"""``python -m perseus_ds.plan.following``: plans iterations of a job, one question after another.

The job's process writes a `Setup` and questions to the standard input, and reads answers from the standard
output. The first (number ``READY``) comes when questions can be asked. This one ends with its input.
"""

from __future__ import annotations

import pickle
import sys
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import PerseusError
from perseus_ds.plan.following.frames import READY, AnswerFrame, QuestionFrame, Setup
from perseus_ds.plan.following.kept import load_problem
from perseus_ds.plan.following.load_problem import LoadFrontier, LoadProblem
from perseus_ds.plan.step_back import PROMPT_S, step_back_after


class Planner:
    """Answers questions; an iteration that is asked for again is solved once."""

    def __init__(self, problem: LoadProblem, frame: AnswerFrame) -> None:
        self._problem = problem
        self._frame = frame
        self._loads: object = None
        self._solved: LoadFrontier | None = None
        self._objective_s = 0.0

    def answer(self, asked: QuestionFrame) -> NDArray[np.float64]:
        """Plan an iteration; none where it cannot be solved."""
        try:
            if self._solved is None or asked.loads != self._loads:
                factor = self._problem.factors(asked.loads)
                self._loads, self._solved = asked.loads, self._problem.solve(factor)
                self._objective_s = self._problem.lasts_s(self._problem.at_objective_s(factor))
            limit_s = asked.stretch * self._objective_s
            followed = self._problem.within(self._solved, limit_s, on_pace=asked.on_pace)
        except PerseusError:
            return self._frame.none(asked.number)
        return self._frame.packed(asked.number, followed)


def main(questions: BinaryIO, answers: BinaryIO) -> int:
    """Answer until the questions end; a job that cannot be planned is one line and exit code 1."""
    setup: Setup = pickle.load(questions)  # noqa: S301  # from the process that started this one
    step_back_after(PROMPT_S)
    try:
        problem = load_problem(setup.plans, setup.profile, setup.objective, change=setup.change)
    except PerseusError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    frame = AnswerFrame(setup.plans, setup.marks)
    planner = Planner(problem, frame)
    answers.write(frame.none(READY).tobytes())
    answers.flush()
    size = 8 * QuestionFrame.numbers(setup.plans.schedule.microbatches)
    while len(asked := questions.read(size)) == size:
        answers.write(planner.answer(QuestionFrame.of(np.frombuffer(asked))).tobytes())
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer, sys.stdout.buffer))
