"""A client of a guard, served to its end: it takes a GPU, asks for clocks, leaves; its clock is restored.

The node's service has a thread for each client, so that a GPU with a slow driver holds up nobody else's.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perseus_ds import __version__
from perseus_ds.device.gpu import ConflictKind
from perseus_ds.errors import (
    DeviceError,
    DevicePermissionError,
    DeviceUnavailableError,
    DeviceUnsupportedError,
)
from perseus_ds.guard.claim import GpuClaim, OpenGpu, open_gpu
from perseus_ds.guard.journal import path_of
from perseus_ds.guard.log import log_event, not_restored
from perseus_ds.guard.policy import Peer, Policy
from perseus_ds.guard.protocol import (
    MAX_BYTES,
    MalformedError,
    Message,
    Value,
    decode,
    encode,
    number,
    printable,
    refusal,
    text,
)
from perseus_ds.guard.writer import ClockWriter

_PACKETS_AT_ONCE = 512
_WITHOUT_GPU_S = 30.0
_MAX_OWNER = 80
_IDLE_S = 60.0
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NICENESS = -10


@dataclass
class Server:
    """State that all connections of one guard share: the rules in force, and how GPUs are reached.

    ``backend`` is how a GPU is reached, whatever a client asks (``None``: as it asks). ``killed_together``
    is why this guard may be killed at once with its client, if it may. ``may_open`` tells whether a client
    itself may open a device file, ``status`` reports the leases that it may see.
    """

    policy: Policy
    backend: str | None = None
    killed_together: str | None = None
    open_gpu: OpenGpu = open_gpu
    may_open: Callable[[Peer, str], bool] = lambda *_: False
    status: Callable[[Peer], Iterable[Message]] = lambda _: ()


class ClientConnection:
    """A connection and, once taken, a GPU; when the connection ends, its clock is restored.

    ``left`` is why it ended. ``launchers`` are descriptors that become readable when a launcher of the client
    ends, each with the launcher's name. ``lease_number`` is for the log.
    """

    def __init__(self, sock: socket.socket, peer: Peer, server: Server, lease_number: int = 0) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.peer = peer
        self.launchers: dict[int, str] = {}
        self.left = "the client hung up"
        self._server = server
        self._lease_number = lease_number
        self._since_s = time.monotonic()
        self._writer: ClockWriter | None = None
        self._owner = ""
        self._syncs = False
        self._logged_failure = ""
        self._logged_expired = False

    def receive(self) -> bool:
        """Read every packet that is there; return whether the client is still connected."""
        for _ in range(_PACKETS_AT_ONCE):
            try:
                packet = self.socket.recv(MAX_BYTES + 1)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not packet:
                return False
            for message in packet.split(b"\n"):
                self._answer(message)
        return True

    def step(self) -> None:
        """Do what is due; failures are reported to the client."""
        writer = self._writer
        if writer is None:
            return
        try:
            writer.step()  # no news of success: it would wake a thread of the trainer each time
            self._answer_sync(writer)
        except DeviceError as error:
            self._refuse(error)
        if writer.expired != self._logged_expired:
            self._logged_expired, uuid = writer.expired, writer.claim.uuid
            why = "the client sent nothing for too long: the clock is put back"
            if writer.expired:
                self._log("lease_expired", f"{uuid}: {why}", logging.WARNING, why=why)
            else:
                self._log("lease_renewed", f"{uuid}: the client sends again")

    def due_s(self) -> float | None:
        """Return when `step` has something to do, or a connection without a GPU has had its time."""
        return self._since_s + _WITHOUT_GPU_S if self._writer is None else self._writer.due_s()

    @property
    def has_taken(self) -> bool:
        return self._writer is not None

    @property
    def idle(self) -> bool:
        return self._writer is None and time.monotonic() >= self._since_s + _WITHOUT_GPU_S

    @property
    def lease(self) -> Message | None:
        """Return who holds which GPU, at what clock, since when; None where no GPU was taken."""
        writer = self._writer
        if writer is None:
            return None
        held_s = round(time.monotonic() - self._since_s, 3)
        lease: Message = {"is": "lease", "uuid": writer.claim.uuid, "owner": self._owner, "held_s": held_s}
        return {**lease, "uid": self.peer.uid, "pid": self.peer.pid, "clock_mhz": writer.stored_mhz}

    def give_up(self, why: DeviceError) -> None:
        """Inform the client why it is served no longer; call `end` next."""
        self.left = why.message
        self._send(refusal(why))

    def end(self) -> DeviceError | None:
        """Restore the GPU's clock and hang up; return what went wrong, if anything."""
        writer, failure = self._writer, None
        clock_mhz = None if writer is None else writer.stored_mhz
        try:
            if writer is not None:
                writer.release()
        except DeviceError as error:
            failure = error
        finally:
            self.socket.close()
            while self.launchers:
                os.close(self.launchers.popitem()[0])
        if writer is not None:
            self._log_end(writer, clock_mhz, failure)
        self._writer = None
        return failure

    def _answer(self, packet: bytes) -> None:
        uuid: Value = None
        try:
            message = decode(packet)
            verb, uuid = message.get("do"), message.get("uuid")
            if verb == "take":
                self._take(message)
            elif verb == "may":
                self._check_allowed(self._server.backend or text(message, "backend"), text(message, "uuid"))
                self._send({"is": "may"})
            elif verb == "status":
                for one in self._server.status(self.peer):
                    self._send(one)
            elif self._writer is None:
                raise DeviceUnavailableError("take a GPU first")
            else:
                self._do_as_holder(self._writer, verb, message)
        except MalformedError as error:
            self._refuse(DeviceUnsupportedError(f"malformed message: {error}"), uuid)
        except DeviceError as error:
            self._refuse(error, uuid)

    def _do_as_holder(self, writer: ClockWriter, verb: Value, message: Message) -> None:
        writer.renew()
        if verb in {"lock", "reset"}:
            wanted_mhz = None
            if verb == "lock":
                gpu, clock_mhz = writer.claim.gpu, int(number(message, "clock_mhz"))
                gpu.check_clock(clock_mhz)
                wanted_mhz = self._server.policy.clamped_mhz(clock_mhz, gpu.capabilities().clocks_mhz)
            due_s = number(message, "at_s") if "at_s" in message else None
            writer.request(int(number(message, "number")), wanted_mhz, due_s)
        elif verb == "expect":
            call_s, latency_s = number(message, "call_s"), number(message, "latency_s")
            writer.expect(call_s=call_s, latency_s=latency_s, held_mhz=number(message, "held_mhz"))
        elif verb == "beat":
            self._send({"is": "alive", **writer.report()})
        elif verb == "sync":
            writer.step()
            self._syncs = True
            self._answer_sync(writer)
        else:
            raise DeviceUnsupportedError(f"malformed message: no verb {verb!r}")

    def _answer_sync(self, writer: ClockWriter) -> None:
        """Answer a wait for what was asked, once the driver has taken it."""
        if self._syncs and not writer.pending:
            self._syncs = False
            self._send({"is": "synced"})

    def _take(self, message: Message) -> None:
        uuid, owner = text(message, "uuid"), printable(text(message, "owner")[:_MAX_OWNER])
        backend, lease_s = self._server.backend or text(message, "backend"), number(message, "lease_s")
        if self._writer is not None:
            raise DeviceUnavailableError(f"this connection holds {self._writer.claim.uuid} already")
        self._check_allowed(backend, uuid)
        policy, gpu = self._server.policy, self._server.open_gpu(backend, uuid)
        try:
            holder, restore_mhz = f"{owner} ({self.peer})", policy.restore_clock_mhz
            claim = GpuClaim(gpu, holder, backend=backend, restore_clock_mhz=restore_mhz)
        except BaseException:
            gpu.close()
            raise
        writer = ClockWriter(claim, lease_s=lease_s, warn=self._warn)
        self._since_s, self._owner, self._writer = time.monotonic(), owner, writer
        taken = f"{claim.uuid} is taken by {owner} ({self.peer})"
        self._log("lease_taken", taken, restore_clock_mhz=claim.restore_clock_mhz)
        # requests may have a moment: by this clock, if it is the client's too
        answer: dict[str, Value] = {"is": "taken", "uuid": claim.uuid, "now_s": time.monotonic()}
        self._send(answer | {"floor_mhz": policy.floor_mhz, "version": __version__})
        writer.report_conditions()
        if self._server.killed_together is not None:
            kind = ConflictKind.KILLED_TOGETHER
            self._warn(kind, f"{kind.text}: {self._server.killed_together}")
        self.launchers = launchers_above(self.peer.pid)

    def _check_allowed(self, backend: str, uuid: str) -> None:
        path_of(uuid)  # refuses what cannot be a GPU's name before anything is done with it

        def owns() -> bool:
            with self._server.open_gpu(backend, uuid) as gpu:
                device = gpu.device_file()
            if device is None:
                raise DevicePermissionError(f"{uuid} has no known device file: its owner cannot be found out")
            return self._server.may_open(self.peer, device)

        self._server.policy.check(self.peer, uuid, owns=owns)

    def _warn(self, kind: ConflictKind, line: str) -> None:
        uuid = "" if self._writer is None else self._writer.claim.uuid
        self._log("conflict", f"{uuid}: {line}", logging.WARNING, kind=kind.name.lower(), why=line)
        refused_mhz = None if self._writer is None else self._writer.refused_mhz
        self._send({"is": "conflict", "kind": kind.name, "line": line, "refused_mhz": refused_mhz})

    def _refuse(self, error: DeviceError, uuid: Value = None) -> None:
        """Refuse and log it; of a driver that refuses clocks only what is new is logged."""
        self._send(refusal(error))
        why = error.message
        if self._writer is None:
            gpu = None if uuid is None else str(uuid)[:_MAX_OWNER]
            self._log("lease_refused", f"refused to {self.peer}: {why}", logging.WARNING, why=why, gpu=gpu)
        elif why != self._logged_failure:
            self._logged_failure = why
            self._log("clock_refused", f"refused to {self._owner}: {why}", logging.WARNING, why=why)

    def _send(self, message: Message) -> None:
        """Send if there is room: a client that does not read loses news, never the guard's time."""
        with contextlib.suppress(OSError):
            self.socket.send(encode(message))

    def _log_end(self, writer: ClockWriter, clock_mhz: int | None, failure: DeviceError | None) -> None:
        held_s, counts, restored = time.monotonic() - self._since_s, writer.counts, failure is None
        after = "the clock is put back" if failure is None else not_restored(failure)
        held = f"{writer.claim.uuid} was held for {held_s:.0f} s by {self._owner} ({self.peer})"
        self._log(
            "lease_ended",
            f"{held}; {self.left}; {after}",
            logging.INFO if restored else logging.ERROR,
            why=self.left,
            held_s=round(held_s, 3),
            clock_mhz=clock_mhz,
            clock_changes=counts.changes,
            late_changes=counts.late,
            overtaken_requests=counts.overtaken,
            restored=restored,
            failure=None if failure is None else failure.message,
        )

    def _log(self, name: str, message: str, level: int = logging.INFO, **fields: Value) -> None:
        """Log an event with who the client is, its lease and GPU."""
        who: dict[str, Value] = {**self.peer.fields()}
        if self._writer is not None:
            uuid, clock_mhz = self._writer.claim.uuid, self._writer.stored_mhz
            who |= {"lease": self._lease_number, "gpu": uuid, "owner": self._owner, "clock_mhz": clock_mhz}
        log_event(name, message, level, **who | fields)


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
    poll, launchers = select.poll(), connection.launchers
    for descriptor in (*ends, *launchers, connection.socket.fileno()):  # answered in this order
        poll.register(descriptor, select.POLLIN)
    due_s = connection.due_s()
    for_s = _IDLE_S if due_s is None else min(_IDLE_S, max(0.0, due_s - time.monotonic()))
    whole_ms = int(1000 * for_s)
    if not whole_ms:
        time.sleep(for_s)
    for descriptor, _ in poll.poll(whole_ms):
        if descriptor in ends:
            connection.left = ends[descriptor]
            return False
        if descriptor in launchers:
            why = f"the job's launcher is gone ({launchers[descriptor]}) and nobody is left to end its ranks"
            hint = "control is given up, the clock is put back"
            connection.give_up(DeviceUnavailableError(why, hint=hint))
            return False
        if not connection.receive():
            return False
    connection.step()
    if connection.idle:
        connection.left = "the client took no GPU"
    return not connection.idle


# Launchers: ranks outlive one that was killed, and one that hangs in a collective still sends beats. Only
# launchers that are known to stay until their ranks have ended are watched. A shell, ssh, srun's or mpirun's
# daemon may go before a job that is meant to run on.

_MODULES = frozenset(
    {
        "deepspeed.launcher.launch",
        "deepspeed.launcher.runner",
        "torch.distributed.run",
        "torch.distributed.launch",
        "perseus_ds",
    }
)
_PROGRAMS = frozenset({"deepspeed", "deepspeed.pt", "ds", "torchrun", "perseus-ds"})
_MAX_ABOVE = 8


def launchers_above(pid: int) -> dict[int, str]:
    """Open the launchers of a process, from its parent up to the first process that is not a launcher.

    Returns a descriptor for each, which becomes readable when it ends, with its name.
    """
    found: dict[int, str] = {}
    while len(found) < _MAX_ABOVE:
        child, pid = pid, _parent_of(pid)
        try:
            descriptor = os.pidfd_open(pid)
        except (OSError, AttributeError):
            break
        words: list[str] = []
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        name = launcher_name(words)
        if name is None or _parent_of(child) != pid:  # opened first, then looked at: numbers are used again
            os.close(descriptor)
            break
        found[descriptor] = f"{name}, process {pid}"
    return found


def launcher_name(words: Sequence[str]) -> str | None:
    """Recognise a launcher by its command line; ``None``: not a launcher."""
    program, *arguments = words or [""]
    if Path(program).name.startswith("python"):
        program = ""
        for index, word in enumerate(arguments):
            if word == "-m":
                return next((name for name in arguments[index + 1 : index + 2] if name in _MODULES), None)
            if not word.startswith("-"):
                program = word
                break
    name = Path(program).name
    return name if name in _PROGRAMS else None


def _parent_of(pid: int) -> int:
    """Read the parent's number; 0 where the parent is not visible (in another container, for one)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[1])
    return 0


@contextmanager
def ending_signals() -> Iterator[int]:
    """Give a descriptor that becomes readable with the first signal, its number a byte. For the main thread.

    From now on, these signals end nothing by themselves: a restore is never cut short by a second one.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    for ending in _ENDING:
        signal.signal(ending, lambda *_: None)
    try:
        yield ours.fileno()
    finally:
        signal.set_wakeup_fd(-1)
        ours.close()
        theirs.close()


def raise_priority() -> None:
    """Go first where more wants to run than there are cores, so that no restore queues up.

    Who may set clocks mostly may do this too; a guard needs a tenth of a millisecond per request.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
