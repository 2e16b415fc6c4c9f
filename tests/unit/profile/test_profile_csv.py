import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.errors import ProfileError
from perseus_ds.profile import Point, Profile, read_csv, read_profile, write_csv
from perseus_ds.schedule import Kind

HEADER = "stage,instruction,frequency,time,energy\n"
GOOD = HEADER + "0,forward,1410,0.1,30.5\n0,backward,1410,0.2,61\n0,forward,1200,0.12,27\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "profile.csv"


def test_reads_what_zeus_writes(file: Path) -> None:
    file.write_text(GOOD)
    assert read_profile(file).points == {
        (0, Kind.FORWARD): (Point(1410, 0.1, 30.5), Point(1200, 0.12, 27.0)),
        (0, Kind.BACKWARD): (Point(1410, 0.2, 61.0),),
    }


def test_reads_other_columns_over_in_any_order_and_blanks_and_capitals_do_no_harm(file: Path) -> None:
    file.write_text("\ufeffenergy,note,time,frequency,instruction,stage\r\n61,,0.2,1410.0, Backward ,3\r\n")
    assert read_csv(file).points == {(3, Kind.BACKWARD): (Point(1410, 0.2, 61.0),)}
    file.write_text(GOOD)
    plain = read_csv(file).points
    file.write_text(GOOD.replace(",", " , ").replace("stage", "\ufeff Stage", 1).replace("energy", "ENERGY"))
    assert read_csv(file).points == plain


points = st.lists(
    st.builds(
        lambda clock_mhz, time_s, power_w: Point(clock_mhz, time_s, power_w * time_s),
        st.integers(10, 3000),
        st.floats(1e-9, 1e8),
        st.floats(6.0, 2999.0),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda point: point.clock_mhz,
)
named = [kind for kind in Kind if kind.is_computation and kind is not Kind.UNKNOWN_COMPUTE]
computations = st.tuples(st.integers(0, 20), st.sampled_from(named))


@given(st.dictionaries(computations, points.map(tuple), min_size=1, max_size=6).map(Profile))
def test_reads_back_what_it_wrote(tmp_path_factory: pytest.TempPathFactory, profile: Profile) -> None:
    file = tmp_path_factory.mktemp("csv") / "profile.csv"
    write_csv(profile, file)
    again = read_csv(file)
    assert {key: again.of(*key) for key in again.points} == {key: profile.of(*key) for key in profile.points}


BAD_ROWS = {
    "time is negative": ("0,forward,1410,-0.1,30", "time"),
    "energy is NaN": ("0,forward,1410,0.1,nan", "energy"),
    "time is a word": ("0,forward,1410,fast,30", "time"),
    "a cell is missing": ("0,forward,1410,0.1", "energy"),
    "a cell too many": ("0,forward,1410,0.1,30,9", "cells"),
    "a decimal comma": ("0,forward,1410,0,1,30", "cells"),
    "a decimal comma in quotes": ('0,forward,1410,"0,1",30', "time"),
    "a separator of thousands": ('0,forward,"1,410",0.1,30', "frequency"),
    "unknown instruction": ("0,sideways,1410,0.1,30", "sideways"),
    "stage is negative": ("-1,forward,1410,0.1,30", "stage"),
    "stage is a fraction": ("0.5,forward,1410,0.1,30", "stage"),
    "frequency is negative": ("0,forward,-5,0.1,30", "frequency"),
    "frequency in GHz": ("0,forward,1.41,0.1,30", "frequency"),
    "measured twice": ("0,forward,1410,0.3,33", "again"),
    "time in ms": ("0,forward,1390,100,30", "W"),
    "power for energy": ("0,forward,1390,0.05,300", "W"),
    "no power that any unit explains": ("0,forward,1390,0.1,1e-9", "joules"),
}


@pytest.mark.parametrize(("row", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_refused_with_file_row_and_column(file: Path, row: str, message: str) -> None:
    file.write_text(GOOD + row + "\n0,backward,1200,0.3,50\n")
    with pytest.raises(ProfileError) as caught:
        read_csv(file)
    assert str(caught.value).startswith(f"{file}: row 5")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


BAD_FILES = {
    "a column missing": (b"stage,instruction,frequency,time_ms,energy\n0,forward,1410,9,9\n", "time_ms"),
    "a column twice": (b"stage,instruction,frequency,time,energy,Time\n", "twice"),
    "empty": (b"", "empty"),
    "no row": (HEADER.encode(), "row"),
    "in UTF-16": ("\ufeff".encode("utf-16-le") + GOOD.encode("utf-16-le"), "UTF-8"),
    "in Latin-1": (GOOD.encode() + b"0,forw\xe4rd,1,1,1\n", "UTF-8"),
    "gzip": (gzip.compress(GOOD.encode()), "UTF-8"),
    "a workbook": (b"PK\x03\x04" + bytes(30), "UTF-8"),
    "a text without end": (HEADER.encode() + b'0,"' + b"x" * 200_000, "CSV"),
    "separated by semicolons": (GOOD.replace(",", ";").encode(), "semicolons"),
    "with decimal commas too": (GOOD.replace(",", ";").replace(".", ",").encode(), "semicolons"),
    "separated by tabs": (GOOD.replace(",", "\t").encode(), "tabs"),
}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_refused_with_its_name(file: Path, content: bytes, message: str) -> None:
    file.write_bytes(content)
    with pytest.raises(ProfileError) as caught:
        read_csv(file)
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["profile.csv.gz", "PROFILE.CSV.GZ", "profile.json.gz", "profile.gz"])
def test_a_compressed_profile_is_named_as_such_whatever_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(GOOD.encode()))
    with pytest.raises(ProfileError, match="UTF-8"):
        read_profile(tmp_path / name)


def test_work_without_a_name_there_is_refused(file: Path) -> None:
    profile = Profile({(1, Kind.UNKNOWN_COMPUTE): (Point(1410, 0.1, 30.5),)})
    with pytest.raises(ProfileError, match="unknown compute"):
        write_csv(profile, file)
    assert not file.exists()
