"""Rows E1 and E2: what becomes of failed messages, step by step, until they are consumed, re-driven
or discarded; every step is reported and the sums close. A broker over TCP, restarted on the way.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from engine.admin import Admin
from engine.admin.api.dead_letters import DeadLetter, DeadLetterQuery
from engine.broker.broker import Broker
from engine.broker.config import BrokerConfig
from engine.client import PushConsumer
from engine.foundation.errors import ConfigError, RequestRefused
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.compression import CompressionType, compress, decompress
from engine.protocol.dead_letters import DISCARDS_TOPIC
from engine.protocol.message import MessageExt
from engine.runtime import system_runtime
from tests.integration.broker.cluster import (
    GROUP,
    READERS,
    TOPIC,
    Cluster,
    RawClient,
    bodies,
    broker_config,
    cluster,
    eventually,
    messages,
)
from tests.integration.broker.spooled import picked, spooled
from tests.integration.client.cluster_users import client_config

RETRY, DLQ = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
WHO, WHY = "ada", "the shop is open again"
ANY = DeadLetterQuery()


def admin_of(running: Cluster) -> Admin:
    return Admin(system_runtime(), client_config(running.name_server_address))


async def next_of(client: RawClient, topic: str, offset: int) -> MessageExt:
    """The message at `offset` of the topic's only queue, waited for."""
    while True:
        pulled = await client.pull(offset, topic=topic, wait_ms=15_000)
        if pulled.code == ResponseCode.SUCCESS:
            return messages(pulled)[0]


async def fail(client: RawClient, message: MessageExt, *, times_max: int = 16) -> None:
    answer = await client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        offset=message.physical_offset,
        group=GROUP,
        delayLevel=0,
        originMsgId=message.message_id,
        originTopic=message.topic,
        maxReconsumeTimes=times_max,
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def kill_message(client: RawClient, key: str, **properties: str) -> MessageExt:
    """A message that fails at once for good; as it was stored first."""
    sent = await client.send(key.encode(), UNIQ_KEY=key, **properties)
    message = await next_of(client, TOPIC, int(sent.fields["queueOffset"]))
    await fail(client, message, times_max=0)
    return message


async def waiting(admin: Admin, count: int) -> list[DeadLetter]:
    """The dead letters that wait for a decision, once `count` are there: a topic that has just
    been made is known when the name server has heard of it."""
    found: list[DeadLetter] = []

    async def there() -> bool:
        found[:] = await admin.dead_letters.find(GROUP, ANY)
        return len(found) == count

    await eventually(there, f"{count} dead letters")
    return found


async def known(admin: Admin, *perms: int) -> None:
    """Waits until the dead-letter topic has these permissions, one of each broker."""

    async def as_reported() -> bool:
        route = await admin.topics.route(DLQ)
        return route is not None and [one.perm for one in route.queue_datas] == [*perms]

    await eventually(as_reported, f"a route with perms {perms}")


async def second_broker(running: Cluster, config: BrokerConfig) -> Broker:
    names = (running.name_server_address,)
    other = Broker(system_runtime(), replace(config, namesrv_addresses=names))
    await other.start()
    return other


async def kill_one_at(running: Cluster, address: str) -> None:
    """A dead letter on the broker at `address`."""
    client = RawClient(address)
    running.clients.append(client)
    await client.heartbeat()
    await kill_message(client, address.replace(":", "-"))


def balance(folder: Path) -> Counter[str]:
    """Steps reported so far; the laws that hold at any time are checked."""
    steps = Counter(row["step"] for row in spooled(folder / "store", "retry_dlq_flow"))
    assert steps["SENT_BACK"] == steps["SCHEDULED"] + steps["DEAD_LETTERED"]
    assert steps["DELIVERED"] <= steps["SCHEDULED"]
    decided = steps["REDRIVEN"] + steps["DISCARDED"] + steps["EXPIRED"]
    assert decided <= steps["DEAD_LETTERED"]
    return steps


async def test_a_dead_letter_is_redriven_dies_again_and_is_discarded_and_all_of_it_is_reported(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path)
    async with cluster(config) as running, admin_of(running) as admin:
        client = running.client()
        await client.heartbeat()
        first = await kill_message(client, "U1", KEYS="order-7", TAGS="A")
        (letter,) = await waiting(admin, 1)
        assert (letter.fate, letter.origin_topic) == ("WAITING", TOPIC)
        assert {"U1", first.offset_message_id} <= set(letter.ids)
        await admin.dead_letters.redrive(letter, who=WHO, why=WHY)
        again = await next_of(client, RETRY, 0)
        assert (again.body, again.reconsume_times) == (b"U1", 0), "all its tries before it"
        kept = {name: again.properties[name] for name in ("UNIQ_KEY", "KEYS", "RETRY_TOPIC")}
        assert kept == {"UNIQ_KEY": "U1", "KEYS": "order-7", "RETRY_TOPIC": TOPIC}
        assert again.properties["ORIGIN_MESSAGE_ID"] == first.offset_message_id
        assert await admin.dead_letters.find(GROUP, ANY) == [], "nothing waits for a decision"
    async with cluster(config) as running, admin_of(running) as admin:
        client = running.client()
        (decided,) = await admin.dead_letters.find(GROUP, DeadLetterQuery(with_decided=True))
        assert (decided.fate, decided.decided_by, decided.decided_why) == ("REDRIVEN", WHO, WHY)
        with pytest.raises(ConfigError, match="not redriven already"):
            await admin.dead_letters.redrive(decided, who=WHO, why=WHY)
        await fail(client, await next_of(client, RETRY, 0), times_max=0)
        (second,) = await waiting(admin, 1)
        await admin.dead_letters.discard(second, who="bob", why="order cancelled")
    async with cluster(config) as running, admin_of(running) as admin:
        letters = await admin.dead_letters.find(GROUP, DeadLetterQuery(with_decided=True))
        assert [letter.fate for letter in letters] == ["REDRIVEN", "DISCARDED"]
        assert (letters[1].decided_by, letters[1].decided_why) == ("bob", "order cancelled")
    flow = spooled(tmp_path / "store", "retry_dlq_flow")
    assert {row["message_id"] for row in flow} == {"U1"}
    assert [picked(row, "step", "reconsume_times", "reason") for row in flow] == [
        ("SENT_BACK", 1, None),
        ("DEAD_LETTERED", 1, "0 retries failed"),
        ("REDRIVEN", 0, f"by {WHO}: {WHY}"),
        ("SENT_BACK", 1, None),
        ("DEAD_LETTERED", 1, "0 retries failed"),
        ("DISCARDED", 1, "by bob: order cancelled"),
    ]
    steps = balance(tmp_path)
    assert steps["DEAD_LETTERED"] == steps["REDRIVEN"] + steps["DISCARDED"], "nothing is left"


@pytest.mark.parametrize("kind", CompressionType)
async def test_a_compressed_dead_letter_that_inflates_beyond_a_brokers_limit_is_redriven(
    tmp_path: Path, kind: CompressionType
) -> None:
    long = b"order" * 1_000_000
    packed, sys_flag = compress(long, level=1, kind=kind)
    config = broker_config(tmp_path)
    assert len(packed) < config.store.max_message_bytes < len(long)
    async with cluster(config) as running, admin_of(running) as admin:
        client = running.client()
        await client.heartbeat()
        await client.send(packed, UNIQ_KEY="U1", sysFlag=sys_flag)
        await fail(client, await next_of(client, TOPIC, 0), times_max=0)
        (letter,) = await waiting(admin, 1)
        assert letter.message.body == long
        await admin.dead_letters.redrive(letter, who=WHO, why=WHY)
        again = await next_of(client, RETRY, 0)
        assert decompress(bytes(again.body), again.sys_flag) == long


async def test_the_sums_close_whichever_way_messages_fail(tmp_path: Path) -> None:
    """Send-backs, copies that consumers send themselves, and their dead letters."""
    config = broker_config(tmp_path, delay_levels_ms=(100, 100, 100, 100, 60_000))
    async with cluster(config) as running, admin_of(running) as admin:
        client = running.client()
        await client.heartbeat()
        for number in range(4):
            await kill_message(client, f"dead-{number}")
        sent = await client.send(b"twice", UNIQ_KEY="twice")
        message = await next_of(client, TOPIC, int(sent.fields["queueOffset"]))
        await fail(client, message)
        await fail(client, await next_of(client, RETRY, 0))
        await next_of(client, RETRY, 1)
        copy = {"topic": RETRY, "UNIQ_KEY": "copy", "RETRY_TOPIC": TOPIC}
        await client.send(b"copy", **copy, DELAY=2, reconsumeTimes=1, maxReconsumeTimes=3)
        await next_of(client, RETRY, 2)
        await client.send(b"copy", **copy, DELAY=5, reconsumeTimes=4, maxReconsumeTimes=3)
        dead = await client.pull(4, topic=DLQ, wait_ms=5_000)
        assert bodies(dead) == [b"copy"], "without waiting for its level"
        letters = await waiting(admin, 5)
        for letter in letters[:2]:
            await admin.dead_letters.redrive(letter, who=WHO, why=WHY)
        await admin.dead_letters.discard(letters[2], who=WHO, why=WHY)
        await waiting(admin, 2)
    steps = balance(tmp_path)
    assert steps == Counter(
        SENT_BACK=8, SCHEDULED=3, DELIVERED=3, DEAD_LETTERED=5, REDRIVEN=2, DISCARDED=1
    )


async def test_a_redrive_is_known_however_often_the_message_died_after_it(tmp_path: Path) -> None:
    """One answer to a question by key holds one message here, and the newest is another copy."""
    config = broker_config(tmp_path, default_query_max_count=1, delay_levels_ms=(1100,))
    async with cluster(config) as running, admin_of(running) as admin:
        client = running.client()
        await client.heartbeat()
        await kill_message(client, "U1")
        (letter,) = await waiting(admin, 1)
        await admin.dead_letters.redrive(letter, who=WHO, why=WHY)
        await fail(client, await next_of(client, RETRY, 0))
        await fail(client, await next_of(client, RETRY, 1), times_max=0)
        (letter,) = await waiting(admin, 1)
        await admin.dead_letters.redrive(letter, who="bob", why="again")
        await next_of(client, RETRY, 2)
    async with cluster(config) as running, admin_of(running) as admin:
        assert await letters_of(admin) == [], "nothing would be re-driven a second time"
        letters = await admin.dead_letters.find(GROUP, DeadLetterQuery(with_decided=True))
        assert [letter.decided_by for letter in letters] == [WHO, "bob"]


async def test_dead_letters_of_two_brokers_that_make_no_topics_are_discarded(
    tmp_path: Path,
) -> None:
    first, second = (
        broker_config(tmp_path / name, broker_name=name, auto_create_topic_enable=False)
        for name in ("broker-a", "broker-b")
    )
    async with cluster(first) as running, admin_of(running) as admin:
        other = await second_broker(running, second)
        for address in (running.broker.address, other.address):
            await admin.topics.create(address, TOPIC, read_queues=1, write_queues=1)
            await kill_one_at(running, address)
        for letter in await waiting(admin, 2):
            await admin.dead_letters.discard(letter, who=WHO, why=WHY)
        await waiting(admin, 0)
        await other.stop()


async def test_one_broker_that_may_not_be_read_is_named_and_no_part_is_returned(
    tmp_path: Path,
) -> None:
    first = broker_config(tmp_path / "a", broker_name="broker-a", dlq_topic_perm=6)
    second = broker_config(tmp_path / "b", broker_name="broker-b", dlq_topic_perm=2)
    async with cluster(first) as running, admin_of(running) as admin:
        other = await second_broker(running, second)
        for address in (running.broker.address, other.address):
            await kill_one_at(running, address)
        await known(admin, 6, 2)
        with pytest.raises(RequestRefused, match=r"perm 2 on broker-b, which .* perm '%DLQ"):
            await admin.dead_letters.find(GROUP, ANY)
        await admin.topics.create(other.address, DLQ, read_queues=1, write_queues=1)
        await known(admin, 6, 6)
        await waiting(admin, 2)
        await other.stop()


async def test_dead_letters_deleted_with_their_topic_are_reported(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running, admin_of(running) as admin:
        client = running.client()
        await client.heartbeat()
        for key in ("discarded", "forgotten"):
            await kill_message(client, key)
        discarded, _ = await waiting(admin, 2)
        await admin.dead_letters.discard(discarded, who=WHO, why=WHY)
        for _ in range(2):
            await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=DLQ)
    flow = spooled(tmp_path / "store", "retry_dlq_flow")
    expired = [picked(row, "message_id", "reason") for row in flow if row["step"] == "EXPIRED"]
    assert expired == [("forgotten", "deleted with its topic before anybody decided about it")]


async def letters_of(admin: Admin, **query: object) -> list[str]:
    found = await admin.dead_letters.find(GROUP, DeadLetterQuery(**query))  # type: ignore[arg-type]
    return [letter.message.body.decode() for letter in found]


async def test_a_query_means_those_it_names(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running, admin_of(running) as admin:
        assert await letters_of(admin) == [], "no dead-letter topic yet"
        client = running.client()
        await client.heartbeat()
        await kill_message(client, "a", TAGS="A", KEYS="k1 k2")
        await kill_message(client, "b", TAGS="B")
        a, b = await waiting(admin, 2)
        born_ms = b.message.store_timestamp_ms
        assert await letters_of(admin, tag="A") == ["a"]
        assert await letters_of(admin, key="k2") == ["a"]
        assert await letters_of(admin, message_id="b") == ["b"]
        assert await letters_of(admin, message_id=a.message.offset_message_id) == ["a"]
        assert await letters_of(admin, origin_topic=TOPIC) == ["a", "b"]
        assert await letters_of(admin, origin_topic="another") == []
        assert await letters_of(admin, begin_ms=born_ms + 1) == []
        assert await letters_of(admin, end_ms=a.message.store_timestamp_ms) == []
        assert await admin.dead_letters.find(GROUP, ANY, count_max=1) == [a]


@pytest.mark.parametrize(("who", "why"), [(" ", WHY), (WHO, ""), (WHO, "two\x02fields")])
async def test_a_decision_without_a_person_or_a_reason_is_refused(
    tmp_path: Path, who: str, why: str
) -> None:
    async with cluster(broker_config(tmp_path)) as running, admin_of(running) as admin:
        client = running.client()
        await client.heartbeat()
        await kill_message(client, "a")
        (letter,) = await waiting(admin, 1)
        with pytest.raises(ConfigError, match="some words in one line"):
            await admin.dead_letters.discard(letter, who=who, why=why)
        assert len(await admin.dead_letters.find(GROUP, ANY)) == 1


async def test_a_dead_letter_topic_of_perm_2_is_read_after_somebody_allowed_it(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path, dlq_topic_perm=2)
    async with cluster(config) as running, admin_of(running) as admin:
        client = running.client()
        await client.heartbeat()
        await kill_message(client, "a")
        refused = await client.pull(0, topic=DLQ, group=READERS)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "its perm 2 has no read bit" in str(refused.remark)
        await known(admin, 2)
        with pytest.raises(RequestRefused, match="no read bit; allow it first"):
            await admin.dead_letters.find(GROUP, ANY)
        await admin.topics.create(
            running.broker.address, DLQ, read_queues=1, write_queues=1, perm=6
        )
        await known(admin, 6)
        await waiting(admin, 1)
        await kill_message(client, "b")
        topic = running.broker.state.topics.find(DLQ)
        assert topic is not None
        assert (topic.perm, topic.read_queue_nums) == (6, 1), "as the operator left it"


async def test_looking_at_dead_letters_is_nobodys_progress(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running, admin_of(running) as admin:
        client = running.client()
        await client.heartbeat()
        await kill_message(client, "a")
        for _ in range(3):
            await waiting(admin, 1)
    assert spooled(tmp_path / "store", "redeliveries") == []
    groups = {row["group"] for row in spooled(tmp_path / "store", "group_watermarks")}
    assert "TOOLS_CONSUMER" not in groups


async def test_what_retention_takes_undecided_is_reported_as_expired_and_the_sums_close(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path, log_bytes=16 * 1024)
    async with cluster(config) as running, admin_of(running) as admin:
        client = running.client()
        await client.heartbeat()
        for key in ("redriven", "discarded", "forgotten"):
            await kill_message(client, key)
        redriven, discarded, forgotten = await waiting(admin, 3)
        await admin.dead_letters.redrive(redriven, who=WHO, why=WHY)
        await admin.dead_letters.discard(discarded, who=WHO, why=WHY)
        forgotten_id = forgotten.message.offset_message_id  # Named, but not by its group:
        await client.send(topic=DISCARDS_TOPIC, KEYS=forgotten_id)  # that decides nothing.
        for _ in range(70):
            await client.send(topic=RETRY, UNIQ_KEY="redriven")  # Its later tries.
        for _ in range(40):
            await client.send(bytes(1000), topic="filler")
        await kill_message(client, "young")
        for path in (tmp_path / "store" / "commitlog").iterdir():
            os.utime(path, (1, 1))
        await client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
        assert running.broker.state.store.min_offset(DLQ, 0) == 3
        assert await letters_of(admin) == ["young"]
    flow = spooled(tmp_path / "store", "retry_dlq_flow")
    assert [row["message_id"] for row in flow if row["step"] == "EXPIRED"] == ["forgotten"]
    steps = balance(tmp_path)
    decided = steps["REDRIVEN"] + steps["DISCARDED"] + steps["EXPIRED"]
    assert (steps["DEAD_LETTERED"], decided) == (4, 3), "and one is left"


async def test_a_group_does_not_consume_its_own_dead_letters_and_another_one_may(
    tmp_path: Path,
) -> None:
    """One that fails again would go back to where it came from, for ever."""
    async with cluster(broker_config(tmp_path)) as running:
        client, reader = running.client("c1"), running.client("c2")
        await client.heartbeat()
        await kill_message(client, "a")
        refused = await client.heartbeat(topics=(TOPIC, DLQ), version=2)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert f"group {GROUP} does not consume its own dead letters" in str(refused.remark)
        group = running.broker.state.groups.of(GROUP)
        assert group is not None
        assert DLQ not in group.subscriptions, "what is refused is not in force"
        assert TOPIC in group.subscriptions, "all else of the heartbeat is"
        refused = await client.pull(0, topic=DLQ, group=GROUP)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "re-drive them, or consume them by another group" in str(refused.remark)
        assert (await reader.heartbeat(READERS, (DLQ,))).code == ResponseCode.SUCCESS
        assert bodies(await reader.pull(0, topic=DLQ, group=READERS)) == [b"a"]
        consumer = PushConsumer(system_runtime(), client_config(running.name_server_address), GROUP)
        with pytest.raises(RequestRefused, match="does not consume its own dead letters"):
            consumer.subscribe(DLQ, "*", lambda _messages, _context: None)
