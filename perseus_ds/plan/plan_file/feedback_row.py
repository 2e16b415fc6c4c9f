"""A plan's feedback in its file, and whether it is of that plan."""

from __future__ import annotations

from collections.abc import Mapping

from perseus_ds.errors import PerseusError
from perseus_ds.files.fields import listed, mapping, real, text, whole
from perseus_ds.plan.feedback.policy import plan_digest
from perseus_ds.plan.plan_file.bounds import MOST, MOST_INSTRUCTIONS, reals
from perseus_ds.plan.record import FeedbackWeights, PlanSet
from perseus_ds.profile import Computation
from perseus_ds.schedule import Kind

_VECTORS = "begin_s", "lasts_s", "most_late_s"
_FIGURES = "saving_pct", "slowdown_pct", "without_pct", "without_slowdown_pct"


def feedback_row(feedback: FeedbackWeights | None) -> dict[str, object] | None:
    """Return what JSON keeps."""
    if feedback is None:
        return None
    return {
        "plan": feedback.plan,
        "of": feedback.of,
        "changes": feedback.changes,
        **{name: getattr(feedback, name).tolist() for name in _VECTORS},
        **{name: getattr(feedback, name) for name in _FIGURES},
        "computations": [
            {
                "stage": stage,
                "kind": kind.value,
                "weights": list(feedback.weights[stage, kind]),
                "options": list(feedback.options[stage, kind]),
            }
            for stage, kind in feedback.weights
        ],
    }


def feedback_of(row: object, plans: PlanSet) -> FeedbackWeights | None:
    """Read it back; a file without one has none.

    Raises:
        PerseusError: it belongs to another plan, or does not fit this one.
    """
    if row is None:
        return None
    content = mapping(row, "feedback")
    index = whole(content, "plan", least=0, most=len(plans) - 1)
    of, own = text(content, "of"), plan_digest(plans, index)
    if of != own:
        raise PerseusError(f"feedback is of plan {of:.20}, plan {index} here is {own}")
    vectors = {name: reals(content, name) for name in _VECTORS}
    count = len(plans.computations())
    if any(len(vector) != count for vector in vectors.values()):
        raise PerseusError(f"feedback: expected {count} numbers in each of {', '.join(_VECTORS)}")
    rows = [mapping(one, "feedback") for one in listed(content["computations"], "feedback")]
    if {key_of(one) for one in rows} != set(plans.options):
        raise PerseusError("feedback has other computations than the plan")
    figures = [real(content, name, least=-MOST, most=MOST) for name in _FIGURES]
    return FeedbackWeights(
        plan=index,
        of=of,
        begin_s=vectors["begin_s"],
        lasts_s=vectors["lasts_s"],
        most_late_s=vectors["most_late_s"],
        weights={key_of(one): _weights(one) for one in rows},
        options={key_of(one): _options(one, len(plans.options[key_of(one)].clock_mhz)) for one in rows},
        changes=whole({"changes": 1, **content}, "changes", least=1, most=2),
        saving_pct=figures[0],
        slowdown_pct=figures[1],
        without_pct=figures[2],
        without_slowdown_pct=figures[3],
    )


def key_of(row: Mapping[str, object]) -> Computation:
    """Which computation a row of a plan file is of."""
    return whole(row, "stage", least=0, most=MOST_INSTRUCTIONS), Kind(row["kind"])


def _weights(row: Mapping[str, object]) -> tuple[float, float]:
    own, before = reals(row, "weights").tolist()
    return own, before


def _options(row: Mapping[str, object], clocks: int) -> tuple[int, ...]:
    """Positions among a computation's clocks."""
    found = [int(one) for one in reals(row, "options", least=0).tolist()]
    if not found or max(found) >= clocks:
        raise PerseusError(f"feedback chooses among clocks {found}, the computation has {clocks}")
    return tuple(found)
