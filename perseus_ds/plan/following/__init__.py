"""Plans of single iterations that follow the loads of their microbatches, made beside the training."""

from perseus_ds.plan.following.frames import READY, AnswerFrame, Followed, QuestionFrame, Setup
from perseus_ds.plan.following.load_problem import LoadProblem, why_not
from perseus_ds.plan.playing.clock_requests import RankClocks

__all__ = [
    "READY",
    "AnswerFrame",
    "Followed",
    "LoadProblem",
    "QuestionFrame",
    "RankClocks",
    "Setup",
    "why_not",
]
