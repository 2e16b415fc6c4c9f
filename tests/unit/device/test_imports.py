"""What importing the device room costs: no vendor library, no torch."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("room", ["perseus_ds.device", "perseus_ds.guard"])
def test_a_room_is_imported_without_torch_and_vendor_libraries(room: str) -> None:
    code = (
        f"import sys, {room}; print(sorted({{'torch', 'deepspeed', 'pynvml', 'numpy'}} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"
