"""The messages between a guard and its clients: JSON objects, one a line, in packets of a Unix socket."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Mapping

from perseus_ds import errors
from perseus_ds.errors import DeviceError, DeviceUnavailableError

Value = str | int | float | bool | None
Message = Mapping[str, Value]

MAX_BYTES = 4096
_MAX_NUMBER = 1e300  # a whole number of a thousand digits fits into no float
ANSWER_S = 20.0
KIND = socket.SOCK_SEQPACKET  # keeps message borders, so that no message is ever sent in half
RESTORED = 3
"""Exit code of a guard that has put its clock back: 0 is also reported of a child that another has reaped."""


class MalformedError(ValueError):
    """Bytes that are not a message: answered with a refusal, never with a crash."""


def encode(message: Message) -> bytes:
    """Make a packet."""
    return json.dumps(message, separators=(",", ":")).encode()


def encode_request(number: int, clock_mhz: int | None, at_s: float | None = None) -> bytes:
    """Make the message of a clock request: `encode` takes ten times as long.

    ``at_s`` is when it is due by CLOCK_MONOTONIC, which all processes of a host read alike; None: now.
    """
    due = b"" if at_s is None else b',"at_s":%.6f' % at_s
    if clock_mhz is None:
        return b'{"do":"reset","number":%d%b}' % (number, due)
    return b'{"do":"lock","number":%d,"clock_mhz":%d%b}' % (number, clock_mhz, due)


def decode(packet: bytes) -> dict[str, Value]:
    """Read a message: an object whose values are plain; all else is a `MalformedError`."""
    if len(packet) > MAX_BYTES:
        raise MalformedError(f"a message of more than {MAX_BYTES} bytes")
    try:
        message = json.loads(packet)
    except (ValueError, RecursionError) as error:
        raise MalformedError("not a JSON object") from error
    if not isinstance(message, dict):
        raise MalformedError("not a JSON object")
    if not all(isinstance(value, str | int | float | bool | None) for value in message.values()):
        raise MalformedError("a value that is not plain")
    return message


def text(message: Message, key: str) -> str:
    """Return a field that is text, or raise `MalformedError` with its key."""
    value = message.get(key)
    if not isinstance(value, str):
        raise MalformedError(f"{key} is not text")
    return value


def number(message: Message, key: str) -> float:
    """Return a field that is a number of which sums are finite, or raise `MalformedError` with its key."""
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MAX_NUMBER:
        raise MalformedError(f"{key} is not a number")
    return value


def ask(sock: socket.socket, packet: bytes) -> dict[str, Value]:
    """Send the first packet of a connection and return the answer, or raise the refusal."""
    sock.settimeout(ANSWER_S)
    with contextlib.suppress(OSError):  # a guard that hung up at once has sent the reason
        sock.send(packet)
    try:
        try:
            answer = decode(sock.recv(MAX_BYTES))
        except ConnectionResetError:  # our packet went unread: the guard's own is still to be read
            answer = decode(sock.recv(MAX_BYTES))
    except (OSError, MalformedError) as error:
        raise DeviceUnavailableError("the guard does not answer", hint="see its message above") from error
    if answer.get("is") == "refused":
        raise error_in(answer)
    return answer


def printable(text: str) -> str:
    """Return text of others as it may stand in a line for a person: one line, no control characters."""
    return "".join(character if character.isprintable() else "?" for character in text)


def refusal(error: DeviceError) -> Message:
    """Put an error into a message."""
    return {"is": "refused", "kind": type(error).__name__, "message": error.message, "hint": error.hint}


def error_in(message: Message) -> DeviceError:
    """Take an error out of a message; an unknown kind is a plain device error."""
    kind = getattr(errors, str(message.get("kind")), DeviceError)
    if not (isinstance(kind, type) and issubclass(kind, DeviceError)):
        kind = DeviceError
    hint = message.get("hint")
    return kind(str(message.get("message")), hint=None if hint is None else str(hint))
