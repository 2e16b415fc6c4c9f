"""Builds the fake libamd_smi.so for the amdsmi binding that is here, and shows the GPUs behind it."""

import ctypes
import hashlib
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import fake_nvml
from fake_nvml import FakeDriver, numbers_of

SOURCE = Path(__file__).with_name("libamd_smi.c")
CACHE = Path(__file__).parents[2] / ".cache" / "fake_amdsmi"
NODE = f"{fake_nvml.NODE}-{fake_nvml.WORKER}"
UUID = f"{NODE}-1000-8000-{{:012d}}"  # guards of two test runs do not meet

CODES = (*range(1, 21), *range(30, 35), *range(39, 56), (1 << 32) - 2, (1 << 32) - 1)  # amdsmi.h 7.0


class GpuState(ctypes.Structure):
    _fields_ = tuple(numbers_of("gpu_t", SOURCE))


class State(ctypes.Structure):
    _fields_ = (*numbers_of("state_t", SOURCE), ("gpu", GpuState * 8))


class FakeAmdsmi(FakeDriver):
    def __init__(self, path: Path, gpus: int = 2) -> None:
        super().__init__(path, State, gpus)
        for index in range(gpus):
            gpu = self.state.gpu[index]
            gpu.low_mhz, gpu.high_mhz, gpu.memory_mhz, gpu.load_pct = 500, 2100, 1300, 90

    def limits_mhz(self) -> list[int]:
        """Read what is limited, without asking the library."""
        return [self.state.gpu[index].limit_mhz for index in range(self.state.gpus)]

    def environment(self) -> dict[str, str]:
        return {
            "FAKE_AMDSMI_STATE": str(self.path),
            "FAKE_AMDSMI_NODE": NODE,
            "ROCM_HOME": str(build()),
            "PERSEUS_GUARD_DIR": str(self.path.parent / "guard"),
        }


def missing() -> str | None:
    """Say why the library cannot be built here."""
    if find_spec("amdsmi") is None:
        return "no amdsmi binding (pip install amdsmi)"
    return None if shutil.which("cc") else "no C compiler (cc) to build the fake libamd_smi.so"


def build() -> Path:
    text = SOURCE.read_text(encoding="ascii") + _unsupported()
    folder = CACHE / hashlib.sha256(text.encode()).hexdigest()[:16]
    fake_nvml.compiled(folder / "lib" / "libamd_smi.so", text)
    return folder


def _unsupported() -> str:
    """What the binding looks up in the library as it is imported, and the source does not have."""
    spec = find_spec("amdsmi")
    wrapper = Path(spec.submodule_search_locations[0]) / "amdsmi_wrapper.py"
    wanted = set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper.read_text(encoding="utf-8")))
    there = set(re.findall(r"^int (\w+)\(", SOURCE.read_text(encoding="ascii"), re.MULTILINE))
    return "".join(
        f"int {name}(void);\nint {name}(void) {{ return NOT_SUPPORTED; }}\n"
        for name in sorted(wanted - there)
    )
