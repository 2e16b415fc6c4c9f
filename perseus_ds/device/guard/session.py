"""One client's conversation with a guard: it takes a GPU, asks for clocks, and leaves."""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import asdict

from perseus_ds.device.conflict import ConflictKind, Rule, conflicts
from perseus_ds.device.guard.openers import OpenGpu
from perseus_ds.device.guard.policy import Peer, Policy
from perseus_ds.device.guard.seat import Seat
from perseus_ds.device.guard.wire import MAX_BYTES, MalformedError, Message, Value, decode, encode, refusal
from perseus_ds.device.guard.writer import ClockWriter
from perseus_ds.errors import DeviceError, DeviceLostError, DeviceUnavailableError, DeviceUnsupportedError

_LEASE_S = 30.0
_LONGEST_LEASE_S = 600.0
_PACKETS_AT_ONCE = 512
_SEATLESS_S = 30.0
_STRIKES = 3  # looks in a row before a foreign clock counts as one


class Session:
    """A connection and, once taken, a GPU; when the connection ends, the GPU is as it was found."""

    def __init__(self, sock: socket.socket, peer: Peer, policy: Policy, open_gpu: OpenGpu) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.peer = peer
        self.seat: Seat | None = None
        self._policy = policy
        self._open_gpu = open_gpu
        self._writer: ClockWriter | None = None
        self._lease_s = _LEASE_S
        self._heard_s = time.monotonic()
        self._lapsed = False
        self._strikes = 0

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
            self._heard_s, self._lapsed = time.monotonic(), False
            self._answer(packet)
        return True

    def step(self) -> None:
        """Write what was asked, read back what is due, and notice a client that fell silent."""
        if self._writer is None:
            return
        try:
            self._lapse()
            self._writer.step()  # no news of success: it would wake a thread of the trainer every time
            self._report()
        except DeviceError as error:
            self._give_up(error)

    def due_s(self) -> float | None:
        """When `step` has something to do though nobody speaks."""
        if self._writer is None:
            return self._heard_s + _SEATLESS_S
        look_s = self._writer.next_look_s()
        lapse_s = self._heard_s + self._lease_s
        if self._lapsed:
            return look_s
        return lapse_s if look_s is None else min(look_s, lapse_s)

    @property
    def idle(self) -> bool:
        """Whether this is a connection that neither holds a GPU nor speaks."""
        return self.seat is None and time.monotonic() >= self._heard_s + _SEATLESS_S

    def end(self) -> DeviceError | None:
        """Put the GPU back and hang up; return what went wrong, if anything."""
        failure = None
        if self.seat is not None:
            try:
                self.seat.leave()
            except DeviceError as error:
                failure = error
            with contextlib.suppress(DeviceError):
                self.seat.gpu.close()
            self.seat = self._writer = None
        self.socket.close()
        return failure

    def _give_up(self, error: DeviceError) -> None:
        """Tell the client, and leave the clock as it was found until it asks again."""
        self._tell(refusal(error))
        if self.seat is not None:
            self._writer = ClockWriter(self.seat)
            with contextlib.suppress(DeviceError):
                self.seat.put_back()

    def _answer(self, packet: bytes) -> None:
        try:
            message = decode(packet)
            self._do(message)
        except MalformedError as error:
            self._tell(refusal(DeviceUnsupportedError(f"malformed message: {error}")))
        except DeviceError as error:
            self._tell(refusal(error))

    def _do(self, message: Message) -> None:
        verb = message.get("do")
        if verb == "take":
            self._take(message)
        elif verb == "beat":
            return
        elif self._writer is None or self.seat is None:
            raise DeviceUnavailableError("take a GPU first")
        elif verb == "lock":
            self._writer.ask(int(_number(message, "number")), self._wanted_mhz(self.seat, message))
        elif verb == "reset":
            self._writer.ask(int(_number(message, "number")), None)
        elif verb == "sync":
            self.step()
            self._tell({"is": "synced", **asdict(self._writer.figures())})
        else:
            raise DeviceUnsupportedError(f"malformed message: no verb {verb!r}")

    def _take(self, message: Message) -> None:
        uuid, owner = _text(message, "uuid"), _text(message, "owner")
        backend, lease_s = _text(message, "backend"), _number(message, "lease_s")
        if self.seat is not None:
            raise DeviceUnavailableError(f"this connection holds {self.seat.uuid} already")
        self._policy.check(self.peer, uuid)
        gpu = self._open_gpu(backend, uuid)
        try:
            self.seat = Seat(gpu, f"{owner[:80]} ({self.peer})", backend=backend)
        except BaseException:
            gpu.close()
            raise
        self._writer = ClockWriter(self.seat)
        self._lease_s = min(max(lease_s, 0.1), _LONGEST_LEASE_S)
        floor_mhz, found_mhz = self._policy.floor_mhz, self.seat.found_mhz
        self._tell({"is": "taken", "uuid": self.seat.uuid, "found_mhz": found_mhz, "floor_mhz": floor_mhz})

        if gpu.capabilities().persistence is False:
            self._warn(ConflictKind.PERSISTENCE_OFF, ConflictKind.PERSISTENCE_OFF.text)

    def _wanted_mhz(self, seat: Seat, message: Message) -> int:
        clock_mhz, able = int(_number(message, "clock_mhz")), seat.gpu.capabilities()
        if clock_mhz not in able.clocks_mhz:
            raise DeviceUnsupportedError(f"{clock_mhz} MHz is not a clock of {seat.uuid}: it has {able.grid}")
        return self._policy.clamped_mhz(clock_mhz, able.clocks_mhz)

    def _lapse(self) -> None:
        """Put the clock back under a client that is silent; it may speak again."""
        if not self._lapsed and self.seat is not None and time.monotonic() > self._heard_s + self._lease_s:
            self._lapsed = True
            self.seat.put_back()
            self._writer = ClockWriter(self.seat)
            self._tell({"is": "lapsed"})

    def _report(self) -> None:
        assert self._writer is not None
        try:
            looked = self._writer.look()
        except DeviceLostError as error:
            self._warn(ConflictKind.GPU_LOST, error.message)
            raise
        if looked is None:
            return
        for conflict in conflicts(*looked):
            self._warn(conflict.kind, conflict.line)
            if conflict.rule is Rule.GIVE_UP:
                self._strikes += 1
                if self._strikes >= _STRIKES:
                    raise DeviceUnavailableError(conflict.line, hint="control is given up")
                return
        self._strikes = 0

    def _warn(self, kind: ConflictKind, line: str) -> None:
        self._tell({"is": "conflict", "kind": kind.name, "line": line})

    def _tell(self, message: Message) -> None:
        """Send if there is room: a client that does not read loses news, never the guard's time."""
        with contextlib.suppress(OSError):
            self.socket.send(encode(message))


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
