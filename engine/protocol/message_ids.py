"""Message ids: offsetMsgId for a stored record, and UNIQ_KEY for the message itself.

    offsetMsgId  hex of  ip 4|16 | int32 port | int64 physical offset
    UNIQ_KEY     hex of  ip 4|16 | int16 pid | int32 token | int32 ms since the month began
                         | int16 counter

Place in the walk: a producer stamps each message with a UNIQ_KEY, a broker's answer names the copy
it stored. Absent on purpose: the clock, which callers read.

Invariant: the UNIQ_KEY stays through all retries; the offsetMsgId changes with each stored copy.
"""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_address
from struct import Struct

from engine.foundation.errors import RemoteProtocolError

_OFFSET_TAIL = Struct(">iq")
_UNIQ_TAIL = Struct(">Hiih")


def split_host(host: str) -> tuple[bytes, int]:
    """`ip:port` as packed address and port. Raises ValueError when it is none."""
    ip, _, port = host.rpartition(":")
    return ip_address(ip.strip("[]")).packed, int(port)


def join_host(packed: bytes, port: int) -> str:
    """The reverse of `split_host`; IPv6 addresses stand in brackets."""
    ip = ip_address(packed)
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


def offset_message_id(host: str, physical_offset: int) -> str:
    """The broker's id of a record: store host and physical offset."""
    packed, port = split_host(host)
    return (packed + _OFFSET_TAIL.pack(port, physical_offset)).hex().upper()


def parse_offset_message_id(text: str) -> tuple[str, int]:
    """Host and physical offset; RemoteProtocolError when `text` is no such id."""
    try:
        raw = bytes.fromhex(text)
    except ValueError as error:
        raise RemoteProtocolError(f"message id {text!r}: hexadecimal digits are allowed") from error
    if len(raw) not in (16, 28):
        raise RemoteProtocolError(f"message id {text!r}: 32 or 56 digits are allowed")
    port, physical_offset = _OFFSET_TAIL.unpack(raw[-12:])
    return join_host(raw[:-12], port), physical_offset


class UniqueIds:
    """Makes UNIQ_KEYs of one client; two clients with different tokens never make the same one."""

    __slots__ = ("_counter", "_head", "_month_start_ms", "_next_month_ms", "_token")

    def __init__(self, ip: str, process_id: int, token: int) -> None:
        """`token`: any 32-bit number that distinguishes this client from others of the process."""
        self._head = ip_address(ip).packed
        self._token = (process_id & 0xFFFF, _signed(token, 32))
        self._counter = 0
        self._month_start_ms = self._next_month_ms = 0

    def next(self, now_ms: int) -> str:
        """The id of one more message made at `now_ms`."""
        if not self._month_start_ms <= now_ms < self._next_month_ms:
            self._turn_month(now_ms)
        self._counter = (self._counter + 1) & 0xFFFF
        tail = _UNIQ_TAIL.pack(
            *self._token, _signed(now_ms - self._month_start_ms, 32), _signed(self._counter, 16)
        )
        return (self._head + tail).hex().upper()

    def _turn_month(self, now_ms: int) -> None:
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        year, month = (now.year + 1, 1) if now.month == 12 else (now.year, now.month + 1)
        self._month_start_ms = int(start.timestamp()) * 1000
        self._next_month_ms = int(start.replace(year=year, month=month).timestamp()) * 1000


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
