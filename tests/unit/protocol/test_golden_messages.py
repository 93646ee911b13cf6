"""Records, batches, ids, hashes and property strings made by RocketMQ's own code."""

from __future__ import annotations

import json
import zlib
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard

from engine.foundation.errors import (
    CorruptRecord,
    LocalProtocolError,
    RemoteProtocolError,
    RequestRefused,
)
from engine.foundation.limits import FRAME_BYTES_MAX, PROPERTIES_BYTES_MAX
from engine.protocol.compression import decompress
from engine.protocol.hashes import body_crc, index_key_hash, java_hash, tags_code
from engine.protocol.message import Message
from engine.protocol.message_batch import decode_batch, encode_batch
from engine.protocol.message_ids import offset_message_id, parse_offset_message_id
from engine.protocol.message_record import decode_record, decode_records, encode_record
from engine.protocol.names import PullSysFlag, check_group, check_topic, dlq_topic, retry_topic
from engine.protocol.properties import decode_properties, encode_properties

CASES = Path(__file__).parents[2] / "cases"
CODEC: dict[str, Any] = json.loads((CASES / "message_codec.json").read_text("utf-8"))
MISC: dict[str, Any] = json.loads((CASES / "misc.json").read_text("utf-8"))


def host_of(address: str, port: int) -> str:
    ip = ip_address(address)
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


@pytest.mark.parametrize("case", CODEC["messages"], ids=lambda c: str(c["physicalOffset"]))
def test_a_record_reads_as_it_was_meant_and_is_written_the_same(case: dict[str, Any]) -> None:
    encoded = bytes.fromhex(case["encodedHex"])
    message = decode_record(encoded)
    assert message.topic == case["topic"]
    assert message.body.hex() == case["bodyHex"]
    assert message.properties == case["properties"]
    assert (message.flag, message.queue_id) == (case["flag"], case["queueId"])
    assert (message.queue_offset, message.physical_offset) == (
        *(case["queueOffset"], case["physicalOffset"]),
    )
    assert (message.born_timestamp_ms, message.store_timestamp_ms) == (
        *(case["bornTimestamp"], case["storeTimestamp"]),
    )
    assert message.born_host == host_of(case["bornHost"], case["bornPort"])
    assert message.store_host == host_of(case["storeHost"], case["storePort"])
    assert (message.sys_flag, message.reconsume_times) == (case["sysFlag"], case["reconsumeTimes"])
    assert message.prepared_transaction_offset == case["preparedTransactionOffset"]
    assert (message.body_crc, message.store_size_bytes) == (case["bodyCRC"], case["storeSize"])
    assert message.offset_message_id == case["offsetMsgId"]
    assert bytes(encode_record(message)) == encoded


def test_records_end_to_end_are_read_one_by_one() -> None:
    encoded = [bytes.fromhex(case["encodedHex"]) for case in CODEC["messages"]]
    offsets = [message.physical_offset for message in decode_records(b"".join(encoded))]
    assert offsets == [case["physicalOffset"] for case in CODEC["messages"]]


def test_every_record_cut_short_is_refused() -> None:
    encoded = bytes.fromhex(CODEC["messages"][1]["encodedHex"])
    for length in range(len(encoded)):
        with pytest.raises(CorruptRecord):
            decode_record(encoded[:length])


def test_a_flipped_bit_in_the_body_is_seen() -> None:
    case = CODEC["messages"][1]
    encoded = bytearray.fromhex(case["encodedHex"])
    encoded[bytes(encoded).index(bytes.fromhex(case["bodyHex"]))] ^= 1
    with pytest.raises(CorruptRecord, match="CRC"):
        decode_record(encoded)


@pytest.mark.parametrize("case", CODEC["batch_bodies"], ids=lambda c: c["encodedHex"][:8])
def test_a_batch_reads_as_it_was_meant_and_is_written_the_same(case: dict[str, Any]) -> None:
    encoded = bytes.fromhex(case["encodedHex"])
    entries = decode_batch(encoded)
    assert [(e.flag, e.body.hex(), e.properties_text) for e in entries] == [
        (m["flag"], m["bodyHex"], m["propertiesString"]) for m in case["messages"]
    ]
    messages = [Message("T", e.body, decode_properties(e.properties_text), e.flag) for e in entries]
    assert bytes(encode_batch(messages)) == encoded
    whole = {sum(sizes_of(encoded)[:count]) for count in range(len(entries) + 1)}
    for length in sorted(set(range(len(encoded))) - whole):
        with pytest.raises(RemoteProtocolError):
            decode_batch(encoded[:length])


def test_a_batch_entry_whose_properties_no_length_field_can_say_is_refused() -> None:
    most = "v" * (PROPERTIES_BYTES_MAX - len("k\x01\x02"))
    [entry] = decode_batch(encode_batch([Message("T", b"", {"k": most})]))
    assert decode_properties(entry.properties_text) == {"k": most}
    with pytest.raises(LocalProtocolError, match=str(PROPERTIES_BYTES_MAX + 1)):
        encode_batch([Message("T", b"", {"k": most + "v"})])


def sizes_of(batch: bytes) -> list[int]:
    """Bytes of each entry of a batch."""
    sizes: list[int] = []
    while sum(sizes) < len(batch):
        sizes.append(int.from_bytes(batch[sum(sizes) :][:4], "big"))
    return sizes


@pytest.mark.parametrize("case", CODEC["property_strings"], ids=lambda c: repr(c["string"]))
def test_property_strings(case: dict[str, Any]) -> None:
    assert decode_properties(case["string"]) == case["decoded"]
    assert decode_properties(encode_properties(case["decoded"])) == case["decoded"]


@pytest.mark.parametrize("case", CODEC["offset_message_ids"], ids=lambda c: c["msgId"])
def test_offset_message_ids(case: dict[str, Any]) -> None:
    host = host_of(case["host"], case["port"])
    assert offset_message_id(host, case["offset"]) == case["msgId"]
    assert parse_offset_message_id(case["msgId"]) == (host, case["offset"])


@pytest.mark.parametrize("text", ["", "zz", "0A", "G" * 32, "0A00000100002A9F000038EC81D9056"])
def test_what_is_no_offset_message_id_is_refused(text: str) -> None:
    with pytest.raises((RemoteProtocolError, RequestRefused)):
        parse_offset_message_id(text)


@pytest.mark.parametrize("case", MISC["java_hash"], ids=lambda c: repr(c["string"])[:20])
def test_hashes_are_javas(case: dict[str, Any]) -> None:
    assert java_hash(case["string"]) == case["hashCode"]
    assert tags_code(case["string"]) == case["tagsCode"]
    assert abs(case["hashCode"]) % 2**31 == case["indexKeyHash"], "what index keys make of it"


def test_an_index_key_whose_hash_is_javas_least_number_counts_as_zero() -> None:
    assert java_hash("T#ajvakuzm") == -(2**31)
    assert index_key_hash("T", "ajvakuzm") == 0


def test_body_checksums_are_rocketmqs() -> None:
    for case in MISC["crc32"]:
        assert body_crc(bytes.fromhex(case["hex"])) == case["crc32_masked"]


def test_pull_flags_are_rocketmqs() -> None:
    names = {
        "commitOffset": PullSysFlag.COMMIT_OFFSET,
        "suspend": PullSysFlag.SUSPEND,
        "subscription": PullSysFlag.SUBSCRIPTION,
        "classFilter": PullSysFlag.CLASS_FILTER,
    }
    for case in MISC["pull_sys_flag"]:
        assert sum(bit for name, bit in names.items() if case[name]) == case["flag"]


@pytest.mark.parametrize(
    ("sys_flag", "squeeze"),
    [
        (0x001, zlib.compress),
        (0x301, zlib.compress),
        (0x101, lz4.frame.compress),
        (0x201, zstandard.ZstdCompressor().compress),
    ],
)
def test_compressed_bodies_come_back_and_broken_ones_are_refused(
    sys_flag: int, squeeze: Any
) -> None:
    plain = b"tide " * 1000
    assert decompress(squeeze(plain), sys_flag) == plain
    assert decompress(plain, sys_flag & ~1) == plain
    for torn in (b"no such thing", b"", squeeze(plain)[:-1], squeeze(plain)[:20]):
        with pytest.raises(CorruptRecord):
            decompress(torn, sys_flag)


@pytest.mark.parametrize(
    ("sys_flag", "squeeze"),
    [
        (0x301, zlib.compress),
        (0x101, lz4.frame.compress),
        (0x201, zstandard.ZstdCompressor().compress),
        pytest.param(
            *(0x201, zstandard.ZstdCompressor(write_content_size=False).compress),
            id="a size that is not given",
        ),
    ],
)
def test_a_small_body_that_inflates_without_end_is_refused(sys_flag: int, squeeze: Any) -> None:
    bomb = squeeze(bytes(4 * FRAME_BYTES_MAX))
    with pytest.raises(CorruptRecord):
        decompress(bomb, sys_flag)


@pytest.mark.parametrize(
    "name", ["T", "a-b_c%d|E", "x" * 127, retry_topic("g" * 120), dlq_topic("g")]
)
def test_usable_topics_pass(name: str) -> None:
    check_topic(name)


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "..", "top\u00efc", "x" * 128, "a\n"])
def test_other_names_are_refused_for_topics_and_groups(name: str) -> None:
    with pytest.raises(RequestRefused):
        check_topic(name)
    with pytest.raises(RequestRefused):
        check_group(name)
