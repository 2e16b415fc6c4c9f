"""Plans of others: what they may ask for is bounded before it is done."""

import base64
import json
import os
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from schedules import hand_made

from perseus_ds.errors import PlanError
from perseus_ds.plan import dumps, loads, read_plans


@pytest.fixture
def content() -> dict[str, Any]:
    return json.loads(dumps(hand_made()))


def refused(content: dict[str, Any]) -> str:
    text = json.dumps(content)
    tracemalloc.start()
    with pytest.raises(PlanError) as caught:
        loads(text)
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 400
    return line


@pytest.mark.thorough
def test_a_small_file_that_inflates_to_twice_what_is_allowed_is_refused(content: dict[str, Any]) -> None:
    squeeze, megabyte = zlib.compressobj(9), bytes(1 << 20)
    first, again = (squeeze.compress(megabyte) + squeeze.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    bomb = first + again * 127
    content["choice"]["zlib_b85_row_differences"] = base64.b85encode(bomb).decode()
    assert "3x4" in refused(content)
    content["choice"]["shape"] = [1 << 20, 1 << 10]
    assert "1073741824 bytes" in refused(content)


def test_too_many_instructions_are_refused_before_they_are_made(content: dict[str, Any]) -> None:
    content["schedule"]["orders"][0] = "0F0 " * 1_000_000
    assert "1000003 instructions" in refused(content)


@pytest.mark.parametrize(
    "clocks",
    [[True, 1000], [1400, -1000], [1400, 1e308], [1400, 1000.5], [1400, "1000"], [1400, [1000]], {"0": 1400}],
)
def test_clocks_that_are_none_are_refused(content: dict[str, Any], clocks: object) -> None:
    content["options"][0]["clock_mhz"] = clocks
    assert "options.0.clock_mhz" in refused(content)


@pytest.mark.parametrize("shape", [[-1, 4], [True, 4], [3], [3.0, 4], "34", None, [1 << 62, 1 << 62]])
def test_shapes_that_are_none_are_refused(content: dict[str, Any], shape: object) -> None:
    content["choice"]["shape"] = shape
    refused(content)


@pytest.mark.parametrize("value", [1e308, -1.0, True, "1", None, [], 10**17])
@pytest.mark.parametrize("key", ["blocking_power_w", "t_min_s", "t_star_s", "solve_time_s", "reserve_pct"])
def test_numbers_that_mean_nothing_are_refused(content: dict[str, Any], key: str, value: object) -> None:
    content[key] = value
    assert f"{key}: " in refused(content)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        with pytest.raises(PlanError, match=f"{path}.*([Dd]irectory|ordinary)"):
            read_plans(path)
