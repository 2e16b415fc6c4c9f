"""Files that others may have written: read within bounds, believed by who could have written them."""

from perseus_ds.files.read import check_folder, open_ordinary, read_bounded, reason_of
from perseus_ds.files.strict_json import parse_json, read_json
from perseus_ds.files.table import number_in, read_table
from perseus_ds.files.trust import appended, may_write, who_else, write_trusted

__all__ = [
    "appended",
    "check_folder",
    "may_write",
    "number_in",
    "open_ordinary",
    "parse_json",
    "read_bounded",
    "read_json",
    "read_table",
    "reason_of",
    "who_else",
    "write_trusted",
]
