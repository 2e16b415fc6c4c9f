"""Builds the fake libnvidia-ml.so.1 and reads and writes the GPUs behind it, from outside."""

import contextlib
import ctypes
import hashlib
import mmap
import os
import re
import secrets
import shutil
import subprocess
import time
from pathlib import Path

SOURCE = Path(__file__).with_name("libnvidia-ml.c")
CACHE = Path(__file__).parents[2] / ".cache" / "fake_nvml"
NODE = os.environ.setdefault("FAKE_NVML_NODE", secrets.token_hex(4))  # and of all processes that we start
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw").zfill(4)
UUID = f"GPU-{NODE}-{WORKER}-0000-0000-{{:012d}}"  # guards of two test runs do not meet

OPEN, READ, SET, RESET, CLOSE = (1 << bit for bit in range(5))
EVERY_CALL = OPEN | READ | SET | RESET | CLOSE
CODES = (*range(1, 30), 999)  # nvml.h 13, enum nvmlReturn_t


def numbers_of(struct: str, source: Path = SOURCE) -> list[tuple[str, type[ctypes.c_uint64]]]:
    """Read the names of a struct's numbers from the C source, in its order."""
    body = source.read_text().partition(f"}} {struct};")[0].rpartition("typedef struct {")[2]
    names = ", ".join(re.findall(r"uint64_t ([^;]+);", body)).split(", ")
    return [(name, ctypes.c_uint64) for name in names]


class GpuState(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 96),
        ("uuid", ctypes.c_char * 96),
        ("pci", ctypes.c_char * 32),
        *numbers_of("gpu_t"),
    )


class State(ctypes.Structure):
    _fields_ = (
        ("magic", ctypes.c_char * 8),
        *numbers_of("state_t"),
        ("driver", ctypes.c_char * 80),
        ("gpu", GpuState * 16),
    )


class FakeDriver:
    """A file that a fake library maps, seen as a structure of its kind."""

    def __init__(self, path: Path, kind: type[ctypes.Structure], gpus: int) -> None:
        self.path = path
        path.write_bytes(bytes(ctypes.sizeof(kind)))
        with path.open("r+b") as file:
            self.state = kind.from_buffer(mmap.mmap(file.fileno(), 0))
        self.state.gpus = gpus

    def strike(
        self, calls: int = EVERY_CALL, *, pct: int = 0, for_s: float = 0.0, code: int | None = None
    ) -> None:
        """Have kinds of calls fail: so many of a hundred, and all from now on for so long.

        Without a code each call fails with another one.
        """
        self.state.struck_pct, self.state.struck_code = pct, code or 0
        self.state.struck_until_us = int((time.monotonic() + for_s) * 1e6) if for_s else 0
        self.state.struck_calls = calls


class FakeNvml(FakeDriver):
    def __init__(self, path: Path, gpus: int = 2, **numbers: int) -> None:
        super().__init__(path, State, gpus)
        self.state.magic, self.state.driver = b"fakenvml", b"999.01"
        for index in range(gpus):
            gpu = self.state.gpu[index]
            gpu.name, gpu.uuid = b"Fake A100", UUID.format(index).encode()
            gpu.pci = f"00000000:{index:02X}:00.0".encode()
            gpu.low_mhz, gpu.high_mhz, gpu.step_mhz, gpu.memory_mhz = 210, 1410, 15, 1593
            gpu.persistence, gpu.period_us, gpu.previous_mhz = 1, 100_000, 1410
            gpu.architecture = 7  # Ampere
            gpu.minor = index
            for name, value in numbers.items():
                setattr(gpu, name, value)

    def locked_mhz(self) -> list[int]:
        """Read what is locked, without asking the library."""
        return [self.state.gpu[index].locked_mhz for index in range(self.state.gpus)]

    def refuse_for(self, seconds: float, index: int = 0, code: int = 999) -> None:
        """Have the driver refuse every call that sets a clock, from now on for so long."""
        self.state.gpu[index].refuse_code = code
        self.state.gpu[index].refuse_until_us = int((time.monotonic() + seconds) * 1e6)

    def environment(self, *, old_driver: bool = False) -> dict[str, str]:
        return {
            **os.environ,
            "FAKE_NVML_STATE": str(self.path),
            "LD_LIBRARY_PATH": str(build(old_driver=old_driver).parent),
            "PERSEUS_GUARD_DIR": str(self.path.parent / "guard"),
        }

    def processes(self) -> dict[int, list[str]]:
        """Everything that runs on this node but ourselves: number and command line."""
        mark, found = f"FAKE_NVML_STATE={self.path}".encode(), {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                        found[int(entry.name)] = words
        return found


def missing_compiler() -> str | None:
    """Say why the library cannot be built here."""
    return None if shutil.which("cc") else "no C compiler (cc) to build the fake libnvidia-ml.so"


def compiled(library: Path, text: str, *flags: str) -> Path:
    """Build a library from C, where it is not there."""
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        fresh = library.with_name(f"building.{os.getpid()}")
        words = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-o", fresh]
        subprocess.run([*words, "-x", "c", "-", *flags], input=text.encode(), check=True)
        fresh.replace(library)
    return library


def build(*, old_driver: bool = False) -> Path:
    name = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16] + ("-old" if old_driver else "")
    flags = ("-Wl,-soname,libnvidia-ml.so.1", *(["-DOLD_DRIVER"] if old_driver else []))
    return compiled(CACHE / name / "libnvidia-ml.so.1", SOURCE.read_text(), *flags)


def load() -> None:
    """Load it into this process under its soname, where pynvml's own loading then finds it."""
    ctypes.CDLL(str(build()), mode=ctypes.RTLD_GLOBAL)
