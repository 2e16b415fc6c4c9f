"""Real launchers on hosts of namespaces: what they start, what that printed, and its end by force."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hosts import PORT, Host, Hosts, entering

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("launched_job.py")
PATIENCE_S = 400.0

OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""In torchrun's store (torch 2.13) a group made anew may find addresses of the one before and never meet."""
ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "PYTHONPATH": str(Path(__file__).parent),
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
    "DS_ACCELERATOR": "cpu",
    "TORCH_EXTENSIONS_DIR": str(ROOT / ".cache" / "torch_extensions"),
    "GLOO_SOCKET_IFNAME": "eth0",
    "HOME": str(Path.home()),
}


@dataclass(frozen=True)
class Step:
    """A line of a rank's: which step it was, its loss, and whether a plan ran it."""

    rank: int
    step: int
    loss: str
    planned: bool


class Launched:
    """Processes that were started on hosts, and what they and their children printed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._files: list[Path] = []

    def start(self, host: Host, *words: str, environment: Mapping[str, str]) -> None:
        """Start a program on a host, in an environment of its own."""
        file = self._folder / f"out{len(self._files)}"
        self._files.append(file)
        with file.open("wb") as output:
            self._processes.append(
                subprocess.Popen(
                    [*entering(host.inside, clock=True), *words],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=ENVIRONMENT | environment,
                    cwd=self._folder,
                )
            )

    def kill(self, *which: int) -> None:
        """Kill what was started, and all that it has started, as ``kill -9`` does."""
        for index in which or range(len(self._processes)):
            for pid in _family(self._processes[index].pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._processes[index].wait()

    @property
    def output(self) -> str:
        """All that was printed so far."""
        return "\n".join(file.read_text(errors="replace") for file in self._files)

    @property
    def steps(self) -> list[Step]:
        """All steps so far, in the order in which each host printed them."""
        found = []
        for line in self.output.splitlines():
            words = line.rpartition(": ")[2].split()  # pdsh puts the host's name before
            if len(words) == 4 and words[3] in "P-" and words[0].isdecimal():
                found.append(Step(int(words[0]), int(words[1]), words[2], words[3] == "P"))
        return found

    def wait(self, true: Callable[[], bool], *, patience_s: float = PATIENCE_S) -> None:
        """Wait until something is so."""
        until_s = time.monotonic() + patience_s
        while not true():
            assert time.monotonic() < until_s, self.output[-6000:]
            time.sleep(0.1)

    @property
    def ranks(self) -> set[int]:
        """The processes that train."""
        alive = {pid for process in self._processes for pid in _family(process.pid)}
        return {pid for pid in alive if str(JOB).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()}

    def ends(self) -> list[int]:
        """Wait for the end of all."""
        return [process.wait(PATIENCE_S) for process in self._processes]


@contextmanager
def launched(folder: Path) -> Iterator[Launched]:
    """Start programs, and leave none."""
    folder.mkdir(parents=True, exist_ok=True)
    one = Launched(folder)
    try:
        yield one
    finally:
        one.kill()


def torchrun(one: Launched, network: Hosts, *words: str, nnodes: str = "2") -> None:
    """Start torchrun on every host, and wait for nothing."""
    for host in network.hosts:
        one.start(
            host,
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", nnodes, "--nproc-per-node", "2"),
            *(
                "--max-restarts",
                "9",
                "--rdzv-backend",
                "c10d",
                "--rdzv-endpoint",
                f"{network.hosts[0].address}:{PORT}",
            ),
            *("--rdzv-conf", f"last_call_timeout=5,is_host={host.number == 0}"),  # names do not resolve
            *("--log-dir", "logs"),  # of this job's folder: torchrun leaves its own
            *("--local-addr", host.address, str(JOB), *words),
            environment=OWN_STORE,
        )


def srun(one: Launched, network: Hosts, *words: str, port: int) -> None:
    """Start one process for each rank, with the variables that Slurm's srun sets and none of torchrun's."""
    ranks = len(network.hosts) * network.ranks_each
    for rank in range(ranks):
        host = network.hosts[rank // network.ranks_each]
        environment = {
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank % network.ranks_each),
            "SLURM_NTASKS": str(ranks),
            "SLURM_NNODES": str(len(network.hosts)),
            "SLURM_JOB_ID": "1",
            "MASTER_ADDR": network.hosts[0].address,
            "MASTER_PORT": str(port),
            **network.environment,
        }
        one.start(host, sys.executable, str(JOB), *words, environment=environment)


_SSH = """#!/bin/bash
# in the place of ssh: a command on a host, in an environment of its own
while [[ $1 == -* ]]; do shift; [[ $1 == *=* ]] && shift; done
pid=$(grep "^$1 " HOSTS | cut -d" " -f2); shift
exec env -i HOME="$HOME" PATH="$PATH" nsenter --target $pid --net --mount --uts -- bash -c "$*"
"""

_PDSH = """#!/bin/bash
# in the place of pdsh: a command on every host, %n its number; what ends processes by name is not done
while [[ $1 == -* ]]; do case $1 in -w) hosts=$2; shift 2;; -f) shift 2;; *) shift;; esac; done
[[ $* == *pkill* ]] && exit 0
number=0
for host in ${hosts//,/ }; do
  SSH $host "${@//%n/$number}" 2>&1 | sed -u "s/^/$host: /" &
  number=$((number + 1))
done
wait
"""


def deepspeed(one: Launched, network: Hosts, folder: Path, *words: str) -> None:
    """Start DeepSpeed's launcher with a hostfile on the first host, which reaches the others itself."""
    folder.mkdir()
    table = folder / "hosts"
    table.write_text("".join(f"host{host.number} {host.inside.pid}\n" for host in network.hosts))
    hostfile = folder / "hostfile"
    hostfile.write_text("".join(f"host{host.number} slots={network.ranks_each}\n" for host in network.hosts))
    for name, text in (("ssh", _SSH), ("pdsh", _PDSH)):
        program = folder / name
        program.write_text(text.replace("HOSTS", str(table)).replace("SSH ", f"{folder / 'ssh'} "))
        program.chmod(0o755)
    carried = {key: value for key, value in ENVIRONMENT.items() if key not in {"HOME", "PATH"}}
    (folder / ".deepspeed_env").write_text("".join(f"{key}={value}\n" for key, value in carried.items()))
    one.start(
        network.hosts[0],
        *("sh", "-c", f'cd {folder} && exec "$@"', "sh"),
        *(str(Path(sys.executable).parent / "deepspeed"), "--hostfile", str(hostfile)),
        *("--master_addr", network.hosts[0].address, "--master_port", str(PORT), str(JOB), *words),
        environment={"PATH": f"{folder}:{ENVIRONMENT['PATH']}"},
    )


def _family(pid: int) -> list[int]:
    """A process and all that it has started, the youngest first."""
    with suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [*(one for child in children for one in _family(int(child))), pid]
    return [pid]
