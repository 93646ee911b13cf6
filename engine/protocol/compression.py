"""Compresses and inflates message bodies with any of the algorithms named by sysFlag.

Place in the walk: the producer compresses a large body, the consumer inflates it; store and broker
pass it on as it is.

Invariant: no body inflates beyond FRAME_BYTES_MAX, whatever it claims. Of messages that were read
together, one that cannot be inflated stays as it is stored and is named in the log: a listener that
fails on it sends it back (RocketMQ's client drops it and what came behind it). Absent on purpose:
when to compress, which is a producer's setting.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable
from enum import Enum
from typing import Any

import lz4.frame
import zstandard

from engine.foundation.errors import CorruptRecord
from engine.foundation.limits import FRAME_BYTES_MAX
from engine.protocol.message import MessageExt
from engine.protocol.names import COMPRESSION_BITS, SysFlag

LEVEL_OF_COPIES = 5
"""RocketMQ's level for messages."""


class CompressionType(Enum):
    """How a producer makes bodies shorter, by RocketMQ's names."""

    ZLIB = "ZLIB"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"


def compress(
    body: bytes, *, level: int, kind: CompressionType = CompressionType.ZLIB
) -> tuple[bytes, int]:
    """The body compressed, and the sysFlag bits that say how.

    `level` is 1 (fast) to 9 (small); LZ4 has one speed, as in RocketMQ.
    """
    match kind:
        case CompressionType.ZLIB:
            return zlib.compress(body, level), int(SysFlag.COMPRESSED | SysFlag.ZLIB)
        case CompressionType.LZ4:
            return lz4.frame.compress(body), int(SysFlag.COMPRESSED | SysFlag.LZ4)
        case CompressionType.ZSTD:
            packed = zstandard.ZstdCompressor(level=level).compress(body)
            return packed, int(SysFlag.COMPRESSED | SysFlag.ZSTD)


def compressed_again(body: bytes, sys_flag: int) -> tuple[bytes, int]:
    """An inflated body as its producer's sysFlag says it was stored, and the bits of that."""
    if not sys_flag & SysFlag.COMPRESSED:
        return body, 0
    kinds = {int(SysFlag.LZ4): CompressionType.LZ4, int(SysFlag.ZSTD): CompressionType.ZSTD}
    kind = kinds.get(sys_flag & COMPRESSION_BITS, CompressionType.ZLIB)
    return compress(body, level=LEVEL_OF_COPIES, kind=kind)


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The body as the producer made it.

    Raises CorruptRecord when it cannot be inflated, is cut off, or inflates beyond FRAME_BYTES_MAX.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    kind = sys_flag & COMPRESSION_BITS
    engine: Any
    try:
        if kind == SysFlag.ZSTD:
            whole = zstandard.frame_content_size(body) <= FRAME_BYTES_MAX  # -1: it does not say.
            engine = zstandard.ZstdDecompressor()
            plain = engine.decompress(body, max_output_size=FRAME_BYTES_MAX) if whole else b""
        else:
            is_lz4 = kind == SysFlag.LZ4
            engine = lz4.frame.LZ4FrameDecompressor() if is_lz4 else zlib.decompressobj()
            plain = engine.decompress(body, FRAME_BYTES_MAX + 1)
            whole = engine.eof and len(plain) <= FRAME_BYTES_MAX
    except (zlib.error, RuntimeError, EOFError, zstandard.ZstdError) as error:
        raise CorruptRecord(f"compressed body: {error}") from error
    if not whole:
        raise CorruptRecord(
            f"a compressed body of {len(body)} bytes is cut off, "
            f"or inflates beyond {FRAME_BYTES_MAX}"
        )
    return bytes(plain)


_log = logging.getLogger(__name__)


def inflate_bodies(messages: Iterable[MessageExt]) -> None:
    """Replace compressed bodies by what they were."""
    for message in messages:
        try:
            message.body = decompress(message.body, message.sys_flag)
        except CorruptRecord as error:
            _log.warning(
                "%s at %s queue %d offset %d keeps its body as it is stored: %s",
                *(message.message_id, message.topic, message.queue_id, message.queue_offset),
                error,
            )
