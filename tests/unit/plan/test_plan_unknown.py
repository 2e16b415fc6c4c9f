"""The names of work that we have no word for travel with the schedule, in requests and in plans."""

from pathlib import Path

from perseus_ds.plan import PlanRequest, build, dumps, loads, read_request, write_request
from perseus_ds.profile import Point, Profile
from perseus_ds.schedule import Instruction, Kind, Schedule

ORDER = tuple(map(Instruction.parse, ("0F0", "0X0", "0B0", "0XC0")))
SCHEDULE = Schedule("users.Own", 1, (ORDER,), unknown=("Checkpoint", "Polish"))


def test_unknown_work_takes_its_time_or_gets_a_clock() -> None:
    points = (Point(1400, 1.0, 300.0), Point(1000, 1.4, 200.0))
    kinds = (Kind.FORWARD, Kind.BACKWARD, Kind.UNKNOWN_COMPUTE)
    profile = Profile({(0, kind): points for kind in kinds}, fixed_s={(0, Kind.UNKNOWN): 0.5})
    plans = build(profile, SCHEDULE, blocking_power_w=50.0)
    assert plans.baseline.iteration_time_s == 3.5
    assert [str(i) for i in plans.computations()] == ["0F0", "0B0", "0XC0"]
    assert loads(dumps(plans)).schedule == SCHEDULE


def test_names_travel_with_a_request(tmp_path: Path) -> None:
    request = PlanRequest(SCHEDULE, {"gpu": "A100"}, blocking_power_w=50.0, reserve_pct=1.0)
    write_request(tmp_path / "request.json", request)
    assert read_request(tmp_path / "request.json") == request
