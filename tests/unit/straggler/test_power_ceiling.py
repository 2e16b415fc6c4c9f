"""Ceilings: what is read and refused, the lowest of several, the plans that hold them, ramps and jobs."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hand_made_plan import hand_made

from perseus_ds.config import Objective
from perseus_ds.errors import PerseusError
from perseus_ds.straggler import CapNumbers, FrontierIndex, HeldCeiling, PowerCap, PowerCaps

NOW_S = 1_900_000_000.0
INDEX = FrontierIndex.of(hand_made(), Objective())  # 6 s and 266.7 W, 8 s and 200 W
FAST_W, SLOW_W = (float(power) for power in INDEX.power_w)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "notices"
    path.mkdir(parents=True, mode=0o755)
    return path


def watts(caps: PowerCaps, now_s: float = NOW_S) -> float | None:
    cap = caps.poll(now_s).cap
    return None if cap is None else cap.power_cap_w


def test_what_is_written_is_what_is_read() -> None:
    cap = PowerCap(1850.0, "job", NOW_S, NOW_S + 60.0, 25.0, "grid event")
    assert PowerCap.parse(cap.to_json().encode()) == cap
    assert PowerCap.parse(b'{"power_cap_w": null}').power_cap_w is None
    told = PowerCap.parse(b'{"power_cap_w": 9, "until": "2030-01-31T18:00:00+01:00"}')
    assert told.until_s == 1896109200.0


BAD = [
    ('{"power_cap_w": NaN}', "NaN"),
    ('{"power_cap_w": 0}', "power_cap_w is 0"),
    ('{"power_cap_w": -5}', "power_cap_w is -5"),
    ('{"power_cap_w": "1800"}', "power_cap_w is '1800'"),
    ('{"power_cap_w": true}', "power_cap_w is True"),
    ('{"watts": 5}', "power_cap_w"),
    ('{"power_cap_w": 5, "per": "rack"}', "per is 'rack'"),
    ('{"power_cap_w": 5, "until": "18:00"}', "until is '18:00'"),
    ('{"power_cap_w": 5, "ramp_w_per_s": -1}', "ramp_w_per_s is -1"),
    ('{"power_cap_w": 5, "colour": 1}', "unknown key 'colour'"),
    ('{"power_cap_w": 18', ""),
]


@pytest.mark.parametrize(("text", "named"), BAD)
def test_a_bad_file_is_said_once_and_what_held_holds_on(folder: Path, text: str, named: str) -> None:
    caps = PowerCaps(folder)
    path = folder / "power_cap.json"
    path.write_text('{"power_cap_w": 1850}')
    assert watts(caps) == 1850.0
    path.write_text(text)
    standing = caps.poll(NOW_S)
    (line,) = standing.complaints
    assert line.startswith(str(path))
    assert named in line
    assert line.endswith("ignored, what held before holds on")
    assert standing.cap is not None
    assert caps.poll(NOW_S).complaints == ()
    path.unlink()
    assert watts(caps) is None


def test_the_time_of_day_begins_and_ends_it(folder: Path) -> None:
    caps = PowerCaps(folder)
    path = folder / "power_cap.json"
    path.write_text(PowerCap(2000.0).to_json())
    assert watts(caps) == 2000.0
    path.write_text(PowerCap(1500.0, start_s=NOW_S + 10.0, until_s=NOW_S + 20.0).to_json())
    assert [watts(caps, NOW_S + after) for after in (0, 9, 10, 19, 20, 99)] == [
        *(2000.0, 2000.0, 1500.0, 1500.0),
        *(None, None),
    ]


def test_of_two_controllers_that_disagree_the_lowest_holds(folder: Path, tmp_path: Path) -> None:
    site = tmp_path / "site.json"
    caps = PowerCaps(folder, str(site), pipelines=4)
    site.write_text('{"power_cap_w": 8000, "per": "job"}')
    (folder / "power_cap.json").write_text('{"power_cap_w": 1900}')
    (folder / "power_cap.rack-7.json").write_text('{"power_cap_w": 2100}')
    standing = caps.poll(NOW_S)
    assert standing.cap is not None
    assert (standing.cap.power_cap_w, standing.source) == (1900.0, str(folder / "power_cap.json"))
    (line,) = standing.complaints
    assert line.startswith("power ceilings disagree, the lowest holds: 1900 W per pipeline by ")
    assert f"8000 W per job by {site}" in line
    assert caps.poll(NOW_S).complaints == ()
    (folder / "power_cap.json").unlink()
    assert watts(caps) == 8000.0


def test_who_is_not_believed(folder: Path) -> None:
    path = folder / "power_cap.json"
    path.write_text('{"power_cap_w": 5}')
    path.chmod(0o666)
    standing = PowerCaps(folder).poll(NOW_S)
    assert standing.cap is None
    assert "can be written by everyone" in standing.complaints[0]


def test_a_job_that_is_over_takes_its_ceilings_along(folder: Path) -> None:
    caps = PowerCaps(folder)
    (folder / "power_cap.json").write_text('{"power_cap_w": 5}')
    caps.clear()
    assert watts(caps) is None
    assert not list(folder.iterdir())


def test_a_controller_writes_lines_to_a_socket(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    caps = PowerCaps(folder, f"unix:{path}")
    (line,) = caps.poll(NOW_S).complaints
    assert line.startswith(f"unix:{path} No such file")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    caps = PowerCaps(folder, f"unix:{path}")
    assert caps.poll(NOW_S).complaints == ()
    controller, _ = server.accept()
    controller.sendall(b'{"power_cap_w": 1800}\n{"power_cap')
    assert watts(caps) == 1800.0
    controller.sendall(b'_w": 1700}\n')
    assert watts(caps) == 1700.0
    controller.sendall(b"more!\n")
    standing = caps.poll(NOW_S)
    assert standing.cap is not None
    assert standing.complaints[0].endswith("ignored, what held before holds on")
    controller.close()
    standing = caps.poll(NOW_S)
    assert standing.complaints == (f"unix:{path} was closed by its controller: the last ceiling holds on",)
    assert standing.cap is not None
    caps.close()
    server.close()


def test_the_fastest_plan_below_the_ceiling_runs_and_comes_back() -> None:
    ceiling = HeldCeiling([INDEX, INDEX])
    assert not ceiling.observe(None, 6.0)
    assert not ceiling.observe(CapNumbers(FAST_W), 6.0)
    assert not ceiling.binds
    assert ceiling.observe(CapNumbers(FAST_W - 1.0), 6.0)
    assert (ceiling.plans, ceiling.binds) == ((1, 1), True)
    assert ceiling.cost(FAST_W - 1.0).slowdown_pct == pytest.approx(100.0 / 3.0)
    assert [index.objective for index in ceiling.indexes] == [1, 1]
    assert [index.fastest for index in ceiling.indexes] == [1, 1]
    assert ceiling.indexes[0].within(6.0) == 1
    assert ceiling.observe(None, 8.0)
    assert (ceiling.plans, ceiling.level_w) == ((0, 0), None)
    assert ceiling.indexes[0] is INDEX


def test_below_the_least_the_slowest_plan_runs() -> None:
    ceiling = HeldCeiling([INDEX])
    ceiling.observe(CapNumbers(0.5 * SLOW_W), 6.0)
    assert ceiling.plans == (1,)
    assert ceiling.least_w == SLOW_W


def test_default_clocks_are_forbidden_where_they_take_more() -> None:
    ceiling = HeldCeiling([INDEX])
    ceiling.observe(CapNumbers(INDEX.default_w + 1.0), 6.0)
    assert not ceiling.forbids_default
    ceiling.observe(CapNumbers(INDEX.default_w - 1.0), 6.0)
    assert ceiling.forbids_default


def test_a_ramp_moves_with_the_time_that_passes() -> None:
    ceiling, levels = HeldCeiling([INDEX]), []
    numbers = CapNumbers(SLOW_W, ramp_w_per_s=2.0)
    for lasted_s in (5.0, 10.0, None, 100.0):
        ceiling.observe(numbers, lasted_s)
        levels.append(ceiling.level_w)
    step_s = 8.0  # unknown: as planned
    assert levels == pytest.approx([FAST_W - 10.0, FAST_W - 30.0, FAST_W - 30.0 - 2.0 * step_s, SLOW_W])
    ceiling.observe(None, 10.0)
    assert ceiling.level_w == pytest.approx(SLOW_W + 20.0)
    ceiling.observe(None, 100.0)
    assert (ceiling.level_w, ceiling.plans) == (None, (0,))


def test_a_ceiling_of_the_job_is_met_by_all_together() -> None:
    """The second replica's GPUs take twice as much for the same work: all meet at one time."""
    other = FrontierIndex.of(replace(hand_made(), power_ratio=np.array([2.0, 2.0])), Objective())
    ceiling = HeldCeiling([INDEX, other], [1, 3])
    together_w = FAST_W + 3 * float(other.power_w[0])
    ceiling.observe(CapNumbers(together_w, of_job=True), 6.0)
    assert (ceiling.plans, ceiling.free_w) == ((0, 0), pytest.approx(together_w))
    ceiling.observe(CapNumbers(together_w - 1.0, of_job=True), 6.0)
    assert ceiling.plans == (1, 1)
    assert ceiling.cost(together_w - 1.0).power_w == pytest.approx(SLOW_W + 3 * float(other.power_w[1]))


def test_another_unit_starts_where_power_is_now() -> None:
    ceiling = HeldCeiling([INDEX, INDEX])
    ceiling.observe(CapNumbers(SLOW_W), 6.0)
    ceiling.observe(CapNumbers(2 * SLOW_W - 10.0, ramp_w_per_s=1.0, of_job=True), 6.0)
    assert ceiling.level_w == pytest.approx(2 * SLOW_W - 6.0)
    assert ceiling.plans == (1, 1)


def test_power_follows_what_is_expected() -> None:
    ratio = np.array([0.9, 0.8])
    index = FrontierIndex.of(replace(hand_made(), power_ratio=ratio), Objective())
    assert index.power_w == pytest.approx(INDEX.power_w * np.array([0.9, 0.8]))


def test_a_wait_for_others_is_part_of_the_mean() -> None:
    assert INDEX.waiting_w(8.0) == pytest.approx(SLOW_W)
    assert INDEX.waiting_w(16.0) == pytest.approx((SLOW_W * 8.0 + 2 * 50.0 * 8.0) / 16.0)


def test_files_of_others_stay(folder: Path) -> None:
    for name in ("power_cap.json.tmp", "power_cap..json", "pipeline_0.json"):
        (folder / name).write_text(json.dumps({"power_cap_w": 5}))
    assert watts(PowerCaps(folder)) is None
    assert len(list(folder.iterdir())) == 3


def test_a_refusal_names_what_was_expected() -> None:
    with pytest.raises(PerseusError, match="expected one of pipeline, job"):
        PowerCap.parse(b'{"power_cap_w": 5, "per": 3}')
