"""Plans of single iterations that follow the loads of their microbatches, made beside the training."""

from perseus_ds.plan.following.frames import READY, AnswerFrame, QuestionFrame, Setup
from perseus_ds.plan.following.load_problem import LoadProblem, why_not

__all__ = [
    "READY",
    "AnswerFrame",
    "LoadProblem",
    "QuestionFrame",
    "Setup",
    "why_not",
]
