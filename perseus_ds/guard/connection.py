"""One client's conversation with a guard: it takes a GPU, asks for clocks, and leaves."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from perseus_ds import __version__
from perseus_ds.device.gpu import ConflictKind, Gpu
from perseus_ds.errors import (
    DeviceError,
    DevicePermissionError,
    DeviceUnavailableError,
    DeviceUnsupportedError,
)
from perseus_ds.guard.claim import GpuClaim, OpenGpu
from perseus_ds.guard.journal import path_of
from perseus_ds.guard.log import LeaseLog
from perseus_ds.guard.policy import Peer, Policy, refusal_of
from perseus_ds.guard.protocol import (
    MAX_BYTES,
    MalformedError,
    Message,
    Value,
    decode,
    encode,
    printable,
    refusal,
)
from perseus_ds.guard.writer import Control

# Who started a rank and would have to end it: ranks outlive a launcher that was killed.
#
# Only launchers that are known to stay until their ranks have ended are watched. A shell, ssh, srun's or
# mpirun's daemon may go before a job that is meant to run on, so their end proves nothing.

_MODULES = frozenset(
    {
        "deepspeed.launcher.launch",
        "deepspeed.launcher.runner",
        "torch.distributed.run",
        "torch.distributed.launch",
        "perseus_ds.cli",
    }
)
_PROGRAMS = frozenset({"deepspeed", "deepspeed.pt", "ds", "torchrun", "perseus-ds"})
_MOST = 8  # one above the other


@dataclass(frozen=True, slots=True)
class Launcher:
    """A living launcher; `fileno` becomes readable when it ends. Its holder closes it."""

    name: str
    pid: int
    descriptor: int

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self.descriptor

    def __str__(self) -> str:
        return f"{self.name}, process {self.pid}"


def launchers_above(pid: int) -> tuple[Launcher, ...]:
    """Open the launchers of a process, from its parent up to the first process that is not a launcher."""
    return tuple(_above(pid))


def launcher_name(words: Sequence[str]) -> str | None:
    """Recognise a launcher by its command line; ``None``: not a launcher."""
    program, *arguments = words or [""]
    if not Path(program).name.startswith("python"):
        return _program(program)
    for index, word in enumerate(arguments):
        if word == "-m":
            return next((module for module in arguments[index + 1 : index + 2] if module in _MODULES), None)
        if not word.startswith("-"):
            return _program(word)
    return None


def _program(word: str) -> str | None:
    name = Path(word).name
    return name if name in _PROGRAMS else None


def _above(pid: int) -> Iterator[Launcher]:
    for _ in range(_MOST):
        parent = _parent_of(pid)
        launcher = None if parent is None else _opened(parent, child=pid)
        if launcher is None:
            return
        yield launcher
        pid = launcher.pid


def _opened(pid: int, *, child: int) -> Launcher | None:
    """Open a process first, then see that it is a launcher and still the parent: numbers are used again."""
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None
    name = launcher_name(_command_line(pid))
    if name is None or _parent_of(child) != pid:
        os.close(descriptor)
        return None
    return Launcher(name, pid, descriptor)


def _command_line(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def _parent_of(pid: int) -> int | None:
    """Read the parent's number; ``None`` where the parent is not visible (in another container, for one)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[1]) or None
    return None


_PACKETS_AT_ONCE = 512
_SEATLESS_S = 30.0


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a guard lends GPUs: alike for all its clients, by the ``policy`` of the moment.

    ``backend`` is how a GPU is reached, whatever a client asks (``None``: as it asks). ``killed_together``
    gives the reason why this guard may be killed in one with its client.
    """

    policy: Callable[[], Policy]
    open_gpu: OpenGpu
    backend: str | None = None
    may_open: Callable[[Peer, str], bool] = lambda *_: True
    killed_together: str | None = None
    status: Callable[[Peer], Iterable[Message]] = lambda _: ()


class ClientConnection:
    """A connection and, once taken, a GPU; when the connection ends, its clock is put back."""

    def __init__(self, sock: socket.socket, peer: Peer, terms: Terms) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.peer = peer
        self._terms = terms
        self._taken_s: float | None = None
        self._owner = ""
        self._control: Control | None = None
        self._syncs = False
        self._since_s = time.monotonic()
        self.launchers: tuple[Launcher, ...] = ()
        self.log = LeaseLog(peer)
        self.left = "the client hung up"

    def receive(self) -> bool:
        """Read every packet that is there; return whether the connection still stands."""
        for _ in range(_PACKETS_AT_ONCE):
            try:
                packet = self.socket.recv(MAX_BYTES + 1)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not packet:
                return False
            self._answer(packet)
        return True

    def step(self) -> None:
        """Do what is due; failures are reported to the client."""
        if self._control is not None:
            try:
                self._control.step()  # no news of success: it would wake a thread of the trainer each time
                self._answer_sync(self._control)
            except DeviceError as error:
                self._refuse(error)
            self.log.looked()

    def due_s(self) -> float | None:
        """When `step` has something to do, or an idle connection has had its time."""
        return self._since_s + _SEATLESS_S if self._control is None else self._control.due_s()

    @property
    def has_taken(self) -> bool:
        """Whether this connection holds a GPU."""
        return self._control is not None

    @property
    def idle(self) -> bool:
        """Whether this is a connection that has taken no GPU in its time."""
        return self._control is None and time.monotonic() >= self._since_s + _SEATLESS_S

    @property
    def lease(self) -> Message | None:
        """Who holds which GPU, at what clock, since when; None where no GPU was taken."""
        control, taken_s = self._control, self._taken_s
        if control is None or taken_s is None:
            return None
        return {
            "is": "lease",
            "uuid": control.claim.uuid,
            "owner": self._owner,
            "uid": self.peer.uid,
            "pid": self.peer.pid,
            "clock_mhz": control.clock_mhz,
            "held_s": round(time.monotonic() - taken_s, 3),
        }

    def give_up(self, why: DeviceError) -> None:
        """Inform the client why it is served no longer; call `end` next."""
        self.left = why.message
        self._send(refusal(why))

    def end(self) -> DeviceError | None:
        """Put the GPU back and hang up; return what went wrong, if anything."""
        control, self._control = self._control, None
        clock_mhz, failure = None if control is None else control.clock_mhz, None
        try:
            if control is not None:
                control.release()
        except DeviceError as error:
            failure = error
        finally:
            self.socket.close()
            launchers, self.launchers = self.launchers, ()
            for launcher in launchers:
                os.close(launcher.fileno())
        self.log.ended(self.left, clock_mhz, failure)
        return failure

    def _answer(self, packet: bytes) -> None:
        for message in packet.split(b"\n"):
            self._answer_one(message)

    def _answer_one(self, message: bytes) -> None:
        uuid: Value = None
        try:
            asked = decode(message)
            uuid = asked.get("uuid")
            self._do(asked)
        except MalformedError as error:
            self._refuse(DeviceUnsupportedError(f"malformed message: {error}"), uuid)
        except DeviceError as error:
            self._refuse(error, uuid)

    def _refuse(self, error: DeviceError, uuid: Value = None) -> None:
        self.log.refused(error, uuid)
        self._send(refusal(error))

    def _do(self, message: Message) -> None:
        verb = message.get("do")
        if verb == "take":
            self._take(message)
        elif verb == "may":
            self._check_allowed(self._terms.backend or _text(message, "backend"), _text(message, "uuid"))
            self._send({"is": "may"})
        elif verb == "status":
            for one in self._terms.status(self.peer):
                self._send(one)
        else:
            self._do_as_holder(verb, message)

    def _do_as_holder(self, verb: Value, message: Message) -> None:
        """Do what only the holder of a GPU may ask."""
        control = self._control
        if control is None:
            raise DeviceUnavailableError("take a GPU first")
        control.renew()
        if verb in {"lock", "reset"}:
            wanted_mhz = self._wanted_mhz(control.claim, message) if verb == "lock" else None
            due_s = _number(message, "at_s") if "at_s" in message else None
            control.request(int(_number(message, "number")), wanted_mhz, due_s)
        elif verb == "expect":
            control.expect(
                call_s=_number(message, "call_s"),
                latency_s=_number(message, "latency_s"),
                held_mhz=_number(message, "held_mhz"),
            )
        elif verb == "report":
            self._send({"is": "report", **asdict(control.report())})
        elif verb == "sync":
            control.step()
            self._syncs = True
            self._answer_sync(control)
        elif verb == "beat":
            self._send({"is": "alive", **asdict(control.report())})
        else:
            raise DeviceUnsupportedError(f"malformed message: no verb {verb!r}")

    def _answer_sync(self, control: Control) -> None:
        """Answer a wait for what was asked, once the driver has taken it."""
        if self._syncs and not control.pending:
            self._syncs = False
            self._send({"is": "synced", **asdict(control.figures())})

    def _take(self, message: Message) -> None:
        uuid, owner = _text(message, "uuid"), _text(message, "owner")
        backend, lease_s = self._terms.backend or _text(message, "backend"), _number(message, "lease_s")
        if self._control is not None:
            raise DeviceUnavailableError(f"this connection holds {self._control.claim.uuid} already")
        self._check_allowed(backend, uuid)
        policy, holder = self._terms.policy(), f"{printable(owner[:80])} ({self.peer})"
        claim = _claim(self._terms.open_gpu(backend, uuid), holder, backend, policy.restore_clock_mhz)
        control = Control(claim, lease_s=lease_s, warn=self._warn)
        control.begin()
        self._control, self._taken_s, self._owner = control, time.monotonic(), printable(owner[:80])
        self.log.taken(control, self._owner)
        taken: dict[str, Value] = {
            "is": "taken",
            "uuid": claim.uuid,
            "floor_mhz": policy.floor_mhz,
            "version": __version__,
            "beats": True,  # each is answered: who hears nothing knows that this guard hangs
            "now_s": time.monotonic(),  # requests may have a moment: by this clock, if it is the client's too
        }
        self._send(taken)
        control.report_conditions()
        if self._terms.killed_together is not None:
            kind = ConflictKind.KILLED_TOGETHER
            self._warn(kind, f"{kind.text}: {self._terms.killed_together}")
        self.launchers = launchers_above(self.peer.pid)

    def _check_allowed(self, backend: str, uuid: str) -> None:
        path_of(uuid)  # refuses what cannot be a GPU's name before anything is done with it
        if not self._terms.policy().admits(self.peer):
            raise refusal_of(self.peer)
        self._terms.policy().check(self.peer, uuid, owns=lambda: self._owns(backend, uuid))

    def _owns(self, backend: str, uuid: str) -> bool:
        """Whether the client itself may open a GPU."""
        with self._terms.open_gpu(backend, uuid) as gpu:
            device = gpu.device_file()
        if device is None:
            raise DevicePermissionError(f"{uuid} has no known device file: its owner cannot be found out")
        return self._terms.may_open(self.peer, device)

    def _wanted_mhz(self, claim: GpuClaim, message: Message) -> int:
        clock_mhz, able = int(_number(message, "clock_mhz")), claim.gpu.capabilities()
        if clock_mhz not in able.clocks_mhz:
            raise DeviceUnsupportedError(
                f"{clock_mhz} MHz is not a clock of {claim.uuid}: it has {able.grid}"
            )
        return self._terms.policy().clamped_mhz(clock_mhz, able.clocks_mhz)

    def _warn(self, kind: ConflictKind, line: str) -> None:
        self.log.conflict(kind, line)
        refused_mhz = None if self._control is None else self._control.refused_mhz
        self._send({"is": "conflict", "kind": kind.name, "line": line, "refused_mhz": refused_mhz})

    def _send(self, message: Message) -> None:
        """Send if there is room: a client that does not read loses news, never the guard's time."""
        with contextlib.suppress(OSError):
            self.socket.send(encode(message))


def _claim(gpu: Gpu, owner: str, backend: str, restore_clock_mhz: int | None) -> GpuClaim:
    try:
        return GpuClaim(gpu, owner, backend=backend, restore_clock_mhz=restore_clock_mhz)
    except BaseException:
        gpu.close()
        raise


def _text(message: Message, key: str) -> str:
    value = message.get(key)
    if not isinstance(value, str):
        raise MalformedError(f"{key} is not text")
    return value


def _number(message: Message, key: str) -> float:
    value: Value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
        raise MalformedError(f"{key} is not a number")
    return value


# One client served to its end: its requests, what is due, who else may end it; then the GPU is restored.
#
# The node's service has a thread for each client, so that a GPU with a slow driver holds up nobody else's.

_IDLE_S = 60.0


def serve(connection: ClientConnection, ends: Mapping[int, str]) -> bool:
    """Serve until the client is gone or one of the descriptors ``ends``, each with its reason, is readable.

    Returns whether the GPU, if one was taken, has its clock back.
    """
    try:
        while _turn(connection, ends):
            pass
    finally:
        failure = connection.end()
    return failure is None


def _turn(connection: ClientConnection, ends: Mapping[int, str]) -> bool:
    """Wait for something to happen and do what it asks for; return whether to go on."""
    launchers = {launcher.fileno(): launcher for launcher in connection.launchers}
    ready = _readable({connection.socket.fileno(), *ends, *launchers}, _patience_s(connection))
    for ended in ready & ends.keys():
        connection.left = ends[ended]
        return False
    for gone in ready & launchers.keys():
        connection.give_up(
            DeviceUnavailableError(
                f"the job's launcher is gone ({launchers[gone]}) and nobody is left to end its ranks",
                hint="control is given up, the clock is put back",
            )
        )
        return False
    if connection.socket.fileno() in ready and not connection.receive():
        return False
    connection.step()
    if connection.idle:
        connection.left = "the client took no GPU"
    return not connection.idle


def _patience_s(connection: ClientConnection) -> float:
    due_s = connection.due_s()
    return _IDLE_S if due_s is None else min(_IDLE_S, max(0.0, due_s - time.monotonic()))


def _readable(descriptors: set[int], for_s: float) -> set[int]:
    """Wait for a descriptor to become readable; whole milliseconds are polled for, the rest is slept."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    whole_ms = int(1000 * for_s)
    if not whole_ms and for_s:
        time.sleep(for_s)
    return {descriptor for descriptor, _ in poll.poll(whole_ms)}


# What a guard does to its own process: it goes first, and no signal ends it before a restore.

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NICENESS = -10


@contextmanager
def ending_signals() -> Iterator[int]:
    """Give a descriptor that becomes readable with the first signal, its number a byte. For the main thread.

    From now on, these signals end nothing by themselves: a restore is never cut short by a second one.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    for number in _ENDING:
        signal.signal(number, lambda *_: None)
    try:
        yield ours.fileno()
    finally:
        signal.set_wakeup_fd(-1)
        ours.close()
        theirs.close()


def go_first() -> None:
    """Where more wants to run than there are cores no restore queues up.

    Who may set clocks mostly may do this too; a guard needs a tenth of a millisecond per request.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
