"""Row D1: RocketMQ's own compressors read bodies that we compress, and we read theirs."""

from __future__ import annotations

from engine.protocol.compression import CompressionType, compress, decompress
from tests.interop.java_clients import JavaChecks

PLAIN = b"abc" * 2000
KINDS = (CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD)


def test_each_kind_is_the_same_on_both_sides(java_checks: JavaChecks) -> None:
    ours = [compress(PLAIN, level=5, kind=kind) for kind in KINDS]
    verdict = java_checks.run("Compressed", "none", *(body.hex() for body, _ in ours))
    assert verdict.startswith("PASS Compressed "), verdict
    for theirs, (_, bits) in zip(verdict.split()[2:], ours, strict=True):
        assert decompress(bytes.fromhex(theirs), bits) == PLAIN
