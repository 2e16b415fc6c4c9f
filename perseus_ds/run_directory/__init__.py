"""The files that a job leaves, each a record with a reader and a writer."""

from perseus_ds.run_directory.events import NOTHING_MEASURED, append_event, read_events, why_unmeasured
from perseus_ds.run_directory.lock import LockOwner, claim, release
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.places import RankPlace, read_places, write_places
from perseus_ds.run_directory.rank_file import CourseRow, RankRecord, read_ranks
from perseus_ds.run_directory.summary import MeasuredSide, Spent, Summary, read_summary, write_summary
from perseus_ds.run_directory.timeline import RecordedIteration, Span, read_timelines, write_timelines
from perseus_ds.run_directory.whole_file import write_json, write_whole

__all__ = [
    "NOTHING_MEASURED",
    "CourseRow",
    "LockOwner",
    "MeasuredSide",
    "RankPlace",
    "RankRecord",
    "RecordedIteration",
    "RunDirectory",
    "Span",
    "Spent",
    "Summary",
    "append_event",
    "claim",
    "read_events",
    "read_places",
    "read_ranks",
    "read_summary",
    "read_timelines",
    "release",
    "why_unmeasured",
    "write_json",
    "write_places",
    "write_summary",
    "write_timelines",
    "write_whole",
]
