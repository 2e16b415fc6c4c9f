"""Packets: there and back, and whatever bytes come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.errors import DeviceError, DevicePermissionError
from perseus_ds.guard import protocol
from perseus_ds.guard.protocol import MAX_BYTES, MalformedError, decode, encode, encode_request, refusal

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(st.dictionaries(st.text(), PLAIN, max_size=5))
def test_a_message_comes_back(message: dict[str, str | int | float | bool | None]) -> None:
    assert decode(encode(message)) == message


def test_a_request_is_a_message() -> None:
    assert decode(encode_request(3, 900)) == {"do": "lock", "number": 3, "clock_mhz": 900}
    assert decode(encode_request(4, None)) == {"do": "reset", "number": 4}


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_malformed(packet: bytes) -> None:
    try:
        assert isinstance(decode(packet), dict)
    except MalformedError as error:
        assert str(error)  # noqa: PT017 - either answer is right


@pytest.mark.parametrize(
    "packet", [b"[1]", b'{"a":[1]}', b"[" * MAX_BYTES, b'{"a":' * 700, b"{" * (MAX_BYTES + 1)]
)
def test_what_is_not_plain_is_refused(packet: bytes) -> None:
    with pytest.raises(MalformedError):
        decode(packet)


def test_an_error_crosses_whole_and_one_of_an_unknown_kind_is_a_plain_device_error() -> None:
    error = protocol.error_in(refusal(DevicePermissionError("no right", hint="be root")))
    assert type(error) is DevicePermissionError
    assert "no right" in str(error)
    assert "be root" in str(error)
    for kind in ("SystemExit", "PerseusError", "annotations", None):
        assert type(protocol.error_in({"kind": kind, "message": "m"})) is DeviceError
