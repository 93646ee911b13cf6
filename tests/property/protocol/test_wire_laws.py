"""Laws of the wire: what is written is read back, however it is cut; garbage does no harm."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.errors import CorruptRecord, RemoteProtocolError, RequestRefused
from engine.protocol import bodies
from engine.protocol.command import LANGUAGES, RemotingCommand, SerializeType
from engine.protocol.fastjson import dumps, loads, object_key
from engine.protocol.frames import FrameDecoder, encode_frame
from engine.protocol.hashes import body_crc, index_key_hash, java_hash
from engine.protocol.headers import PullMessageRequestHeader, SendMessageRequestHeader
from engine.protocol.message import Message, MessageExt, MessageQueue
from engine.protocol.message_batch import decode_batch, encode_batch
from engine.protocol.message_ids import offset_message_id, parse_offset_message_id
from engine.protocol.message_record import decode_record, encode_record
from engine.protocol.properties import decode_properties, encode_properties

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
PLAIN = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=20
)
PROPERTIES = st.dictionaries(PLAIN, PLAIN, max_size=5)
TOPICS = st.text("abcXYZ%_-|019", min_size=1, max_size=127)
HOSTS = st.one_of(
    st.builds(lambda ip, port: f"{ip}:{port}", st.ip_addresses(v=4), st.integers(0, 65_535)),
    st.builds(lambda ip, port: f"[{ip}]:{port}", st.ip_addresses(v=6), st.integers(0, 65_535)),
)

COMMANDS = st.builds(
    RemotingCommand,
    code=INT16,
    fields=st.dictionaries(TEXT, TEXT, max_size=6),
    body=st.binary(max_size=200),
    remark=st.none() | TEXT,
    opaque=INT32,
    flag=INT32,
    language=st.sampled_from(LANGUAGES),
    version=INT16,
    serialize_type=st.sampled_from(SerializeType),
)


@given(st.lists(COMMANDS, max_size=5), st.data())
def test_frames_come_back_however_the_stream_is_cut(
    commands: list[RemotingCommand], data: st.DataObject
) -> None:
    stream = b"".join(encode_frame(command) for command in commands)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=10).map(sorted))
    decoder = FrameDecoder()
    read = [command for piece in pieces(stream, cuts) for command in decoder.feed(piece)]
    assert read == commands
    assert decoder.buffered_bytes == 0


def pieces(stream: bytes, cuts: list[int]) -> Iterator[bytes]:
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        yield stream[begin:end]


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_garbage_in_a_stream_raises_only_what_is_declared(chunks: list[bytes]) -> None:
    decoder = FrameDecoder()
    try:
        for chunk in chunks:
            decoder.feed(chunk)
    except RemoteProtocolError:
        return
    assert decoder.buffered_bytes <= sum(map(len, chunks))


@given(COMMANDS, st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_frame_raises_only_what_is_declared(
    command: RemotingCommand, at: int, byte: int
) -> None:
    damaged = bytearray(encode_frame(command))
    damaged[at % len(damaged)] = byte
    try:
        FrameDecoder().feed(damaged)
    except RemoteProtocolError:
        return


MESSAGES = st.builds(
    MessageExt,
    topic=TOPICS,
    body=st.binary(max_size=100),
    properties=PROPERTIES,
    flag=INT32,
    queue_id=INT32,
    queue_offset=INT64,
    physical_offset=INT64,
    sys_flag=st.sampled_from([0, 4, 8, 12]),
    born_timestamp_ms=INT64,
    born_host=HOSTS,
    store_timestamp_ms=INT64,
    store_host=HOSTS,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
    body_crc=st.just(0),
    store_size_bytes=st.just(0),
)


@given(MESSAGES)
def test_records_come_back(message: MessageExt) -> None:
    encoded = encode_record(message)
    read = decode_record(encoded)
    assert read.store_size_bytes == len(encoded)
    assert read.body_crc == body_crc(message.body)
    read.store_size_bytes = read.body_crc = 0
    read.sys_flag &= 0xC  # The bits that say which host is an IPv6 one are set by writing.
    assert read == message


@given(MESSAGES, st.integers(0, 10_000), st.integers(0, 255))
def test_damaged_records_raise_only_what_is_declared(
    message: MessageExt, at: int, byte: int
) -> None:
    damaged = bytearray(encode_record(message))
    damaged[at % len(damaged)] = byte
    try:
        decode_record(damaged)
    except CorruptRecord:
        return


@given(
    st.lists(
        st.builds(Message, st.just("T"), st.binary(max_size=50), PROPERTIES, INT32), max_size=5
    )
)
def test_batches_come_back(messages: list[Message]) -> None:
    entries = decode_batch(bytes(encode_batch(messages)))
    assert [(e.flag, e.body, decode_properties(e.properties_text)) for e in entries] == [
        (m.flag, m.body, decode_properties(encode_properties(m.properties))) for m in messages
    ]


@given(st.binary(max_size=80))
def test_garbage_batches_raise_only_what_is_declared(data: bytes) -> None:
    try:
        decode_batch(data)
    except RemoteProtocolError:
        return


@given(st.dictionaries(PLAIN.filter(lambda t: len(t) > 1), PLAIN, max_size=5))
def test_properties_come_back(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@given(HOSTS, st.integers(0, 2**63 - 1))
def test_offset_message_ids_come_back(host: str, physical_offset: int) -> None:
    assert parse_offset_message_id(offset_message_id(host, physical_offset)) == (
        *(host, physical_offset),
    )


@given(st.text(max_size=30))
def test_the_hash_is_the_slow_obvious_one(text: str) -> None:
    units = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for at in range(0, len(units), 2):
        total = total * 31 + int.from_bytes(units[at : at + 2], "big")
    assert java_hash(text) == (total + 2**31) % 2**32 - 2**31


@given(st.text(max_size=12), st.text(max_size=30) | st.text("0123456789ABCDEF", max_size=500))
def test_an_index_key_hashes_as_its_text_does(topic: str, key: str) -> None:
    assert index_key_hash(topic, key) == abs(java_hash(f"{topic}#{key}")) % 2**31


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | INT64 | FLOATS | TEXT
KEYS = TEXT | st.dictionaries(TEXT, INT64 | TEXT, max_size=3).map(object_key)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)


@given(DOCUMENTS)
def test_documents_come_back_object_keys_and_all(document: object) -> None:
    assert loads(dumps(document)) == document


@given(st.dictionaries(INT64, INT64, max_size=5))
def test_integer_keys_come_back_as_text_bare_or_quoted(table: dict[int, int]) -> None:
    bare = "{" + ",".join(f"{key}:{value}" for key, value in table.items()) + "}"
    assert loads(bare) == loads(dumps(table)) == {str(key): value for key, value in table.items()}


@given(st.text('{}[]:,"\\0123456789.eE+-tru flasn\x00', max_size=40) | st.binary(max_size=40))
def test_garbage_documents_raise_only_what_is_declared(garbage: str | bytes) -> None:
    try:
        loads(garbage)
    except RemoteProtocolError:
        return


JSON_NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,4})?", fullmatch=True
)


@given(
    st.text('{}[]:,"\\0123456789.eE+-tru flasn', max_size=40)
    | JSON_NUMBERS
    | DOCUMENTS.map(lambda document: dumps(document).decode())
)
def test_a_document_means_the_same_beside_one_that_only_fastjson_writes(text: str) -> None:
    def read(document: str) -> object:
        try:
            return repr(loads(document))
        except RemoteProtocolError:
            return "refused"

    alone, beside = read(f"[{text}]"), read(f"[{{1:0}},{text}]")
    if text.strip():
        assert beside == (alone if alone == "refused" else f"[{{'1': 0}}, {str(alone)[1:]}")


@given(st.binary(max_size=60) | DOCUMENTS.map(dumps))
def test_garbage_bodies_raise_only_what_is_declared(data: bytes) -> None:
    for read in (
        bodies.HeartbeatData.decode,
        bodies.TopicRouteData.decode,
        bodies.LockBatchRequest.decode,
        bodies.ConsumerRunningInfo.decode,
        bodies.ConsumeStats.decode,
        bodies.RegisterBrokerBody.decode,
        bodies.decode_offset_table,
    ):
        try:
            read(data)
        except RemoteProtocolError:
            continue


QUEUES = st.builds(MessageQueue, TOPICS, TEXT, st.integers(0, 4096))


@given(st.dictionaries(QUEUES, st.integers(0, 2**62), max_size=6))
def test_offsets_by_queue_come_back(offsets: dict[MessageQueue, int]) -> None:
    assert bodies.decode_local_offsets(bodies.encode_local_offsets(offsets)) == offsets


TOPIC_CONFIGS = st.builds(
    bodies.TopicConfig,
    topic_name=TOPICS,
    read_queue_nums=st.integers(1, 4096),
    write_queue_nums=st.integers(1, 4096),
    perm=st.integers(0, 15),
)


@given(st.lists(TOPIC_CONFIGS, max_size=5, unique_by=lambda c: c.topic_name), st.booleans())
def test_registrations_come_back_in_both_forms(
    configs: list[bodies.TopicConfig], compressed: bool
) -> None:
    body = bodies.RegisterBrokerBody(
        bodies.DataVersion(0, 1, len(configs)), {config.topic_name: config for config in configs}
    )
    encoded = body.encode(compressed=compressed)
    assert bodies.RegisterBrokerBody.decode(encoded, compressed=compressed) == body


@given(st.dictionaries(st.sampled_from(["topic", "queueId", "consumerGroup", "a", "b"]), st.text()))
def test_garbage_headers_are_refused(fields: dict[str, str]) -> None:
    for read in (PullMessageRequestHeader.decode, SendMessageRequestHeader.decode_v2):
        try:
            read(fields)
        except RequestRefused:
            continue
