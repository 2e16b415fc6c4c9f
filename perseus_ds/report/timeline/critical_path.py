"""What the iteration time hangs on: one longest path, traced back from the last end."""

from __future__ import annotations

from perseus_ds.run_directory import RecordedIteration
from perseus_ds.schedule import Instruction, Schedule, dag_of


def critical_path(timeline: RecordedIteration, schedule: Schedule) -> tuple[Instruction, ...]:
    """Return the instructions of a longest path, first to last; of predecessors the one that ends last.

    Durations are measured, places follow from the graph, so that each instruction begins as one of those
    before it ends (or its transfer arrives). Instructions that the timeline lacks are passed over.
    """
    ends_s = {span.instruction: span.start_s + span.duration_s for span in timeline.spans}
    dag = dag_of(schedule)
    before: dict[Instruction, list[Instruction]] = {node: [] for node in dag.nodes}
    for earlier, later in dag.edges:
        if dag.nodes[earlier] in ends_s:
            before[dag.nodes[later]].append(dag.nodes[earlier])
    known = [node for node in dag.nodes if node in ends_s]
    if not known:
        return ()
    path = [max(known, key=ends_s.__getitem__)]
    while before[path[-1]]:
        path.append(max(before[path[-1]], key=ends_s.__getitem__))
    return tuple(reversed(path))
