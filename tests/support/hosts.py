"""Hosts of namespaces with links between them, and jobs started on them by real launchers."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fake_nvml
import jobs
import pytest
from fake_nvml import FakeNvml
from jobs import STAGES, Done, Trained, train_until
from ranks import PipelineEngine, Said, run_ranks
from torch.distributed import get_world_size

from perseus_ds import detach

NETS = ("10.9.0", "10.9.1")  # what training and the store use, and a second one
PORT = 29400
_KINDS = ("user", "net", "mnt", "uts", "time")
_PATIENCE_S = 30.0
_BOOT = "/proc/sys/kernel/random/boot_id"
_HIDDEN = Path("/mnt")  # where every host has a disk of its own


@dataclass(frozen=True)
class Host:
    """One host: ``inside`` is a process that stands in its namespaces."""

    number: int
    inside: subprocess.Popen[str]

    @property
    def address(self) -> str:
        return f"{NETS[0]}.{self.number + 1}"

    def cable(self, net: int) -> str:
        """Its end of a network, on the switch."""
        return f"port{net}.{self.number}"

    def enter(self) -> None:
        """Move this process, which must have one thread, to the host."""
        libc = ctypes.CDLL(None, use_errno=True)
        for kind in _KINDS if _has_own_users(self.inside) else _KINDS[1:]:
            name = "time_for_children" if kind == "time" else kind
            handle = os.open(f"/proc/{self.inside.pid}/ns/{name}", os.O_RDONLY)
            if libc.setns(handle, 0) != 0:
                raise OSError(ctypes.get_errno(), f"cannot enter the {kind} namespace")
            os.close(handle)


@dataclass
class Hosts:
    """Hosts on one switch, ``ranks_each`` ranks on each of them."""

    switch: subprocess.Popen[str]
    hosts: list[Host]
    ranks_each: int
    days_apart: float = 0.0
    environment: dict[str, str] = field(default_factory=dict)
    own: dict[int, dict[str, str]] = field(default_factory=dict)
    """Of one host alone, by its number."""

    @property
    def disk(self) -> Path:
        """A folder that every host has, each its own; the first host's is seen from outside (`outside`)."""
        return _HIDDEN

    def outside(self, host: int = 0) -> Path:
        return Path(f"/proc/{self.hosts[host].inside.pid}/root") / _HIDDEN.relative_to("/")

    def link(self, host: int, *, up: bool, net: int = 0) -> None:
        _within(self.switch, "ip", "link", "set", self.hosts[host].cable(net), "up" if up else "down")

    def reboot(self, host: int) -> None:
        """Lose a host's disk and namespaces, as its processes are lost already, and make it anew."""
        _ended(self.hosts[host].inside)
        eventually(lambda: not self._is_plugged_in(host), _PATIENCE_S)  # the kernel takes its time
        self.hosts[host] = one = _host(self.switch, host, self.days_apart)
        boot = self.outside(host) / "boot_id"
        boot.write_text(f"{uuid.uuid4()}\n")
        _within(one.inside, "mount", "--bind", str(_HIDDEN / boot.name), _BOOT)

    def _is_plugged_in(self, host: int) -> bool:
        words = (*entering(self.switch), "ip", "-o", "link", "show")
        shown = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        return any(f" {self.hosts[host].cable(net)}@" in shown for net in range(len(NETS)))

    def firewall(self, port: int = PORT) -> None:
        """Lose every packet between hosts on the first network, but those of one port of the master."""
        lost, nobody = f"{NETS[0]}.250", "02:00:00:00:00:fa"
        rules = [f"rule add pref 10 ipproto tcp {end} {port} lookup main" for end in ("sport", "dport")]
        rules += [
            f"neigh add {lost} lladdr {nobody} dev eth0 nud permanent",
            f"route add default via {lost} dev eth0 table 99",
            f"rule add pref 11 to {NETS[0]}.0/24 lookup 99",
        ]
        for host in self.hosts:
            for rule in rules:
                _within(host.inside, "ip", *rule.split())

    def cutting(self, host: int, for_s: float, *, once: Path, net: int = 0) -> AbstractContextManager[None]:
        """Pull a host's cable for a while once there is a file (as this process sees it)."""

        def cut() -> None:
            self.link(host, up=False, net=net)
            time.sleep(for_s)
            self.link(host, up=True, net=net)

        return beside(when(once.exists, cut))

    def run(self, body: Callable[..., object], *args: object) -> list[Said]:
        """Call ``body(rank, *args)`` in a process per rank, communicators ready, on the hosts in turn."""

        def enter(rank: int) -> None:
            host = self.hosts[rank // self.ranks_each]
            host.enter()
            os.environ.update(
                LOCAL_RANK=str(rank % self.ranks_each),
                LOCAL_WORLD_SIZE=str(self.ranks_each),
                MASTER_ADDR=self.hosts[0].address,
                MASTER_PORT=str(PORT),
                GLOO_SOCKET_IFNAME="eth0",  # the training's own, until `forget_interface`
            )
            os.environ.update(self.environment | self.own.get(host.number, {}))

        return run_ranks(len(self.hosts) * self.ranks_each, body, *args, enter=enter)


def forget_interface(value: str | None = None) -> None:
    """From now on gloo must find its interface by itself, as in a job whose training needs no gloo."""
    os.environ.pop("GLOO_SOCKET_IFNAME", None)
    if value is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = value


@contextmanager
def hosts(
    count: int = 2, *, ranks_each: int = 2, days_apart: float = 0.0, own_users: bool = True
) -> Iterator[Hosts]:
    """Make hosts whose names do not resolve; the monotonic clocks of neighbours are ``days_apart``.

    Without ``own_users`` root there is the machine's own, whom guards let set clocks. Skips the test where
    this machine does not let us.
    """
    users = ("--user", "--map-root-user") if own_users else ()
    switch = _begun("unshare", *users, "--net", "--mount")
    network = Hosts(switch, [], ranks_each, days_apart)
    try:
        for net in range(len(NETS)):
            _within(switch, "ip", "link", "add", f"switch{net}", "type", "bridge")
            _within(switch, "ip", "link", "set", f"switch{net}", "up")
        for number in range(count):
            network.hosts.append(_host(switch, number, days_apart))
        yield network
    finally:
        for process in (*(host.inside for host in network.hosts), switch):
            _ended(process)


def _host(switch: subprocess.Popen[str], number: int, days_apart: float) -> Host:
    ahead_s = str(int(number * days_apart * 86_400))
    own = ("unshare", "--net", "--mount", "--uts", "--time", "--monotonic", ahead_s)
    inside = _begun(*entering(switch), *own)
    host = Host(number, inside)
    try:
        _plug_in(switch, host)
    except BaseException:
        _ended(inside)
        raise
    return host


def _ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def _plug_in(switch: subprocess.Popen[str], host: Host) -> None:
    pid = str(host.inside.pid)
    _within(host.inside, "hostname", f"host{host.number}")
    _within(host.inside, "mount", "-t", "tmpfs", "tmpfs", str(_HIDDEN))
    _within(host.inside, "ip", "link", "set", "lo", "up")
    for net, prefix in enumerate(NETS):
        cable, card = host.cable(net), f"eth{net}"
        _within(switch, "ip", "link", "add", cable, "type", "veth", "peer", "name", card, "netns", pid)
        _within(switch, "ip", "link", "set", cable, "master", f"switch{net}", "up")
        _within(host.inside, "ip", "address", "add", f"{prefix}.{host.number + 1}/24", "dev", card)
        _within(host.inside, "ip", "link", "set", card, "up")


def _begun(*words: str) -> subprocess.Popen[str]:
    try:
        process = subprocess.Popen(
            [*words, "--", "sh", "-c", "echo in; exec sleep 1000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    except FileNotFoundError as error:
        pytest.skip(f"no hosts can be made here: {error}")
    if process.stdout.readline() != "in\n":
        pytest.skip(f"no hosts can be made here: {process.communicate()[1].strip()}")
    return process


def entering(process: subprocess.Popen[str], *, clock: bool = False) -> tuple[str, ...]:
    return (
        "nsenter",
        "--target",
        str(process.pid),
        *(("--user", "--preserve-credentials") if _has_own_users(process) else ()),
        "--net",
        "--mount",
        "--uts",
        *(("--time",) if clock else ()),
    )


def _has_own_users(process: subprocess.Popen[str]) -> bool:
    return Path(f"/proc/{process.pid}/ns/user").readlink() != Path("/proc/self/ns/user").readlink()


def _within(process: subprocess.Popen[str], *words: str) -> None:
    done = subprocess.run([*entering(process), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no hosts can be made here: {' '.join(words)}: {done.stderr.strip()}")


# Whole jobs on a node of fake NVIDIA GPUs: the real pynvml, real guards, clocks seen from outside.

sys.path.insert(0, str(Path(__file__).parents[1] / "fake_nvml"))


def node_at(folder: Path, stages: int = STAGES, **numbers: int) -> FakeNvml:
    why_not = fake_nvml.missing_compiler()
    if why_not is not None:
        pytest.skip(why_not)
    fake_nvml.build()
    return FakeNvml(folder / "gpus", stages, **{"settle_us": 3000, "period_us": 20_000, **numbers})


def block(run_dir: Path, **changes: object) -> dict[str, Any]:
    own = {
        "device": "nvml",
        "profile": {"min_window_s": 1.5, "max_clocks": 3, "warmup_iterations": 2},
        "objective": {"node_changes_per_s": 1e6},  # calls that queue on a busy host are no budget of changes
    }
    return jobs.block(run_dir, **own | changes)


def holding(run_dir: Path) -> dict[str, object]:
    return block(run_dir, mode="profile", profile={"min_window_s": 1e4, "max_clocks": 2, "settle_s": 0.0})


def live(rank: int, content: Mapping[str, Any], done: Done, more: int, computes_s: float = 0.0) -> Trained:
    """Train until rank 0 sees that it is done, a few steps more, and leave as at the end of a script.

    Every rank is a stage, whose host waits ``computes_s`` for each microbatch, as for a GPU that computes.
    """
    engines: list[PipelineEngine] = []

    def built(engine: PipelineEngine) -> None:
        engines.append(engine)
        if computes_s:
            engine.module.register_forward_pre_hook(lambda *_: time.sleep(computes_s))

    fake_nvml.load()
    found = train_until(rank, content, get_world_size(), done, more=more, at_most=100_000, built=built)
    detach(engines[0])
    return found


def lived(
    node: FakeNvml,
    content: Mapping[str, Any],
    done: Done,
    *,
    stages: int = STAGES,
    more: int = 3,
    computes_s: float = 0.0,
) -> list[Said]:
    return run_ranks(stages, live, content, done, more, computes_s, environment=node.environment())


def eventually(true: Callable[[], object], patience_s: float = 60.0) -> bool:
    """Wait until something is so; say whether it came to that."""
    until_s = time.monotonic() + patience_s
    while time.monotonic() < until_s:
        if true():
            return True
        time.sleep(0.002)
    return False


@contextmanager
def beside(act: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run something beside the job; it is signalled when the job is over."""
    over = threading.Event()
    thread = threading.Thread(target=act, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def when(true: Callable[[], bool], act: Callable[[], None]) -> Callable[[threading.Event], None]:
    """Wait beside the job until something is so, then do something, once."""

    def watch(over: threading.Event) -> None:
        while not over.wait(0.005):
            if true():
                act()
                return

    return watch


# Real launchers on hosts of namespaces: what they start, what that printed, and its end by force.

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).parents[1] / "nodes" / "launched_job.py"
LAUNCH_PATIENCE_S = 400.0

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
            for pid in family(self._processes[index].pid):
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

    def wait(self, true: Callable[[], bool], *, patience_s: float = LAUNCH_PATIENCE_S) -> None:
        """Wait until something is so."""
        until_s = time.monotonic() + patience_s
        while not true():
            assert time.monotonic() < until_s, self.output[-6000:]
            time.sleep(0.1)

    @property
    def ranks(self) -> set[int]:
        """The processes that train."""
        alive = {pid for process in self._processes for pid in family(process.pid)}
        return {pid for pid in alive if str(JOB).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()}

    def ends(self) -> list[int]:
        """Wait for the end of all."""
        return [process.wait(LAUNCH_PATIENCE_S) for process in self._processes]


@contextmanager
def launched(folder: Path) -> Iterator[Launched]:
    folder.mkdir(parents=True, exist_ok=True)
    one = Launched(folder)
    try:
        yield one
    finally:
        one.kill()


def torchrun(one: Launched, network: Hosts, *words: str, nnodes: str = "2") -> None:
    for host in network.hosts:
        one.start(
            host,
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", nnodes, "--nproc-per-node", "2"),
            *("--max-restarts", "9", "--rdzv-backend", "c10d"),
            *("--rdzv-endpoint", f"{network.hosts[0].address}:{PORT}"),
            *("--rdzv-conf", f"last_call_timeout=5,is_host={host.number == 0}"),  # names do not resolve
            *("--log-dir", "logs"),  # of this job's folder: torchrun leaves its own
            *("--local-addr", host.address, str(JOB), *words),
            environment=OWN_STORE,
        )


def srun(one: Launched, network: Hosts, *words: str, port: int) -> None:
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


def family(pid: int) -> list[int]:
    """A process and all that its threads have started, the youngest first."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += family(int(child))
    return [*found, pid]
