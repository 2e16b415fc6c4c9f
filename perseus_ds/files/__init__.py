"""Files that others may have written: read within bounds, believed by who could have written them."""

from perseus_ds.files.read import check_folder, read_bounded, reason_of
from perseus_ds.files.strict_json import parse_json, read_json
from perseus_ds.files.trust import may_write, write_trusted

__all__ = [
    "check_folder",
    "may_write",
    "parse_json",
    "read_bounded",
    "read_json",
    "reason_of",
    "write_trusted",
]
