from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.errors import ProfileError
from perseus_ds.profile import Point, Profile, read_csv, read_profile, write_csv
from perseus_ds.schedule import Kind

HEADER = "stage,instruction,frequency,time,energy\n"
GOOD = HEADER + "0,forward,1410,0.1,30.5\n0,backward,1410,0.2,61\n0,forward,1200,0.12,27\n"

positive = st.floats(1e-9, 1e9)
points = st.lists(
    st.builds(Point, clock_mhz=st.integers(1, 3000), time_s=positive, energy_j=positive),
    min_size=1,
    max_size=4,
    unique_by=lambda point: point.clock_mhz,
)
computations = st.tuples(
    st.integers(0, 20),
    st.sampled_from([kind for kind in Kind if kind.is_computation and kind is not Kind.UNKNOWN_COMPUTE]),
)
profiles = st.builds(Profile, st.dictionaries(computations, points.map(tuple), min_size=1, max_size=6))


def test_reads_what_zeus_writes(tmp_path: Path) -> None:
    file = tmp_path / "profile.csv"
    file.write_text(GOOD)
    assert read_profile(file).points == {
        (0, Kind.FORWARD): (Point(1410, 0.1, 30.5), Point(1200, 0.12, 27.0)),
        (0, Kind.BACKWARD): (Point(1410, 0.2, 61.0),),
    }


def test_reads_other_columns_over_and_any_order_of_columns(tmp_path: Path) -> None:
    file = tmp_path / "profile.csv"
    file.write_text("\ufeffenergy,note,time,frequency,instruction,stage\r\n61,,0.2,1410.0, Backward ,3\r\n")
    assert read_csv(file).points == {(3, Kind.BACKWARD): (Point(1410, 0.2, 61.0),)}


@pytest.mark.thorough
@given(profile=profiles)
def test_reads_back_what_it_wrote(tmp_path_factory: pytest.TempPathFactory, profile: Profile) -> None:
    file = tmp_path_factory.mktemp("csv") / "profile.csv"
    write_csv(profile, file)
    again = read_csv(file)
    assert {key: again.of(*key) for key in again.points} == {key: profile.of(*key) for key in profile.points}


BAD_ROWS = {
    "time is negative": ("0,forward,1410,-0.1,30", "time is -0.1 (expected a number above 0)"),
    "time is zero": ("0,forward,1410,0,30", "time is 0 (expected a number above 0)"),
    "energy is NaN": ("0,forward,1410,0.1,nan", "energy is nan (expected a finite number)"),
    "energy is infinite": ("0,forward,1410,0.1,inf", "energy is inf (expected a finite number)"),
    "time is a word": ("0,forward,1410,fast,30", "time is 'fast' (expected a number)"),
    "energy is empty": ("0,forward,1410,0.1,", "energy is '' (expected a number)"),
    "a cell is missing": ("0,forward,1410,0.1", "energy is None (expected a number)"),
    "a cell too many": ("0,forward,1410,0.1,30,9", "has more cells than the header"),
    "unknown instruction": ("0,sideways,1410,0.1,30", "instruction is 'sideways' (forward, backward, "),
    "stage is negative": ("-1,forward,1410,0.1,30", "stage is '-1' (expected 0, 1, 2, ...)"),
    "stage is a fraction": ("0.5,forward,1410,0.1,30", "stage is '0.5' (expected 0, 1, 2, ...)"),
    "stage is a word": ("first,forward,1410,0.1,30", "stage is 'first' (expected a number)"),
    "frequency is a fraction": ("0,forward,0.4,0.1,30", "frequency is 0.4 (expected a whole number of MHz)"),
    "frequency is negative": ("0,forward,-5,0.1,30", "frequency is -5 (expected a number above 0)"),
    "measured twice": ("0,forward,1410,0.3,33", "measures the same stage, instruction and frequency again"),
}


@pytest.mark.parametrize(("row", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_refused_with_file_row_and_column(tmp_path: Path, row: str, message: str) -> None:
    file = tmp_path / "profile.csv"
    file.write_text(GOOD + row + "\n0,backward,1200,0.3,50\n")
    with pytest.raises(ProfileError) as caught:
        read_csv(file)
    assert str(caught.value).startswith(f"{file}: row 5")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


BAD_FILES = {
    "a column missing": (
        b"stage,instruction,frequency,time\n",
        "no column energy (expected stage,",
    ),
    "empty": (b"", "no column stage, instruction, frequency, time, energy"),
    "no row": (HEADER.encode(), "no row (expected one row per stage"),
    "not text": (b"\xff\xfe\x00stage", "is not a CSV file"),
    "a text without end": (HEADER.encode() + b'0,"' + b"x" * 200_000, "is not a CSV file"),
    "separated by semicolons": (b"stage;instruction;frequency;time;energy\n0;forward;1;1;1\n", "no column"),
}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_refused_with_its_name(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "profile.csv"
    file.write_bytes(content)
    with pytest.raises(ProfileError) as caught:
        read_csv(file)
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"nowhere\.csv: No such file"):
        read_profile(tmp_path / "nowhere.csv")


def test_work_without_a_name_there_is_refused(tmp_path: Path) -> None:
    profile = Profile({(1, Kind.UNKNOWN_COMPUTE): (Point(1410, 0.1, 30.5),)})
    with pytest.raises(ProfileError, match="stage 1 has unknown compute, for which the CSV has no name"):
        write_csv(profile, tmp_path / "profile.csv")
    assert not (tmp_path / "profile.csv").exists()
