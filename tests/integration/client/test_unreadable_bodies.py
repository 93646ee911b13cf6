"""Rows D1 and D6: a body that cannot be inflated keeps no other message from its group, and what is
no trace hides no other from a tool.
"""

from __future__ import annotations

from engine.admin import Admin
from engine.runtime import system_runtime
from tests.integration.broker.cluster import RawClient
from tests.integration.client.cluster_users import Seen, client_config, consuming, eventually
from tests.integration.client.stories import make_topic
from tests.interop.our_engine import OurEngine

TOPIC = "unreadable"
SAYS_ZLIB, SAYS_LZ4, SAYS_ZSTD = 0x301, 0x101, 0x201


async def test_the_group_gets_it_as_it_is_stored_and_all_that_follow(engine: OurEngine) -> None:
    await make_topic(engine, TOPIC, queues=1)
    client, seen = RawClient(engine.broker), Seen()
    for body, sys_flag in (
        (b"first", 0),
        (b"not zlib", SAYS_ZLIB),
        (b"not lz4", SAYS_LZ4),
        (b"not zstd", SAYS_ZSTD),
        (b"last", 0),
    ):
        await client.send(body, topic=TOPIC, sysFlag=sys_flag, UNIQ_KEY=body.decode())
    await client.close()
    async with consuming(engine.name_server, "readers", {TOPIC: seen}):
        await eventually(lambda: len(seen.messages) == 5, "all messages come")
    assert sorted(seen.bodies) == ["first", "last", "not lz4", "not zlib", "not zstd"]
    async with Admin(system_runtime(), client_config(engine.name_server)) as admin:
        (found,) = await admin.messages.query(TOPIC, "not zstd", is_unique_key=True)
    assert found.body == b"not zstd"


async def test_a_record_that_is_no_trace_hides_none_of_the_others(engine: OurEngine) -> None:
    await make_topic(engine, "traces", queues=1)
    client = RawClient(engine.broker)
    sent = "Pub\x011\x01r\x01g\x01t\x01M1\x01\x01\x01h:1\x015\x012\x010\x01id\x01true\x02"
    for body in (b"Pub\x01when?\x02", b"\xff\xfe", sent.encode()):
        await client.send(body, topic="traces", KEYS="M1")
    await client.close()
    async with Admin(system_runtime(), client_config(engine.name_server)) as admin:
        (trace,) = await admin.messages.traces("M1", trace_topic="traces")
    assert trace.message_id == "M1"
