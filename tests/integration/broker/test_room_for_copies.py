"""Whoever is accepted keeps all that its sender said of it: as a retry, as a dead letter, re-driven
and dead again. What leaves no room for that is refused at the send, by each way of sending.

What an older version accepted without that room becomes a dead letter that says what it lacks.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from random import Random

import pytest

from engine.admin import Admin
from engine.admin.api.dead_letters import DeadLetterQuery
from engine.foundation.errors import ConfigError, RequestRefused
from engine.foundation.limits import PROPERTIES_BYTES_MAX
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.copy_room import ADDED, ROOMY_BYTES
from engine.protocol.message import Message, MessageExt
from engine.protocol.message_batch import encode_batch
from engine.protocol.properties import PROPERTY_LEFT_OUT, decode_properties, encode_properties
from engine.runtime import system_runtime
from engine.store import MessageDraft
from tests.integration.broker.accepted_messages import Paths
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    Cluster,
    RawClient,
    broker_config,
    cluster,
    eventually,
)
from tests.integration.broker.spooled import spooled
from tests.integration.broker.transactor import COMMIT, Half, Transactor
from tests.integration.client.cluster_users import client_config

REFUSAL = (
    r"its properties: (\d+) bytes of the sender, (?:(\d+) that the broker adds, )?and (\d+) "
    r"reserved for what its retries, dead letter and re-drive add, (\d+) in all; the limit is "
    r"32767: shorten them by (\d+) bytes"
)
RETRY, DLQ = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
LOG_BYTES = 16 << 20
BIG_BYTES = 32_700 - len("UNIQ_KEY\x01U1\x02SMALL\x01kept\x02")
"""Of the long property, with its name, in properties of 32,700 bytes."""
OWN_BYTES = 102
"""Of CLUSTER, MSG_REGION and TRACE_ON with DefaultCluster, which the broker adds to each send."""


def filled(length: int, *more: str) -> str:
    """Properties of so many bytes, with a UNIQ_KEY among them."""
    rest = "".join(("UNIQ_KEY\x01U1\x02", *more))
    return rest + "BIG\x01" + "x" * (length - len(rest) - 5) + "\x02"


async def send_back(client: RawClient, message: MessageExt, level: int) -> None:
    answer = await client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        offset=message.physical_offset,
        group=GROUP,
        delayLevel=level,
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def drawn(chance: Random) -> dict[str, str]:
    """Properties by chance, many of them near the limit; some have names that copies use, too."""
    names = [f"p{number}" for number in range(5)] + chance.sample(
        sorted(ADDED.keys() - {"DELAY"}), 2
    )
    properties = {name: "ü" * chance.randrange(1, 60) for name in names}
    size = len(encode_properties(properties).encode())
    properties["long"] = "v" * (ROOMY_BYTES + chance.randrange(-400, 400) - size)
    return properties


async def sent_at_once(client: RawClient, body: bytes, properties: str) -> bool:
    return (await client.send(body, properties=properties)).code == ResponseCode.SUCCESS


async def sent_delayed(client: RawClient, body: bytes, properties: str) -> bool:
    return await sent_at_once(client, body, f"{properties}DELAY\x011\x02")


async def committed(client: RawClient, body: bytes, properties: str) -> bool:
    half = f"{properties}TRAN_MSG\x01true\x02PGROUP\x01p\x02"
    now_ms = client.runtime.clock.now_ms()
    sent = await client.send(body, properties=half, sysFlag=4, bornTimestamp=now_ms)
    if sent.code != ResponseCode.SUCCESS:
        return False
    place = int(sent.fields["msgId"][16:], 16)
    begun = Half(sent.fields["transactionId"], int(sent.fields["queueOffset"]), place)
    ended = await Transactor(client).end(begun, COMMIT)
    assert ended.code == ResponseCode.SUCCESS, ended.remark
    return True


SENDS = (sent_at_once, sent_delayed, committed)


async def moved(paths: Paths, bodies: set[bytes], topic: str, times: int) -> list[MessageExt]:
    """The copies of these in a topic that were tried so often, when all are there."""
    found: dict[bytes, MessageExt] = {}

    async def all_there() -> bool:
        there = await paths.all_of(topic)  # The newest copy of each.
        found.update({body: one for body, one in there.items() if one.reconsume_times == times})
        return bodies <= found.keys()

    await eventually(all_there, f"try {times} of all in {topic}", within_s=30)
    return [found[body] for body in sorted(bodies)]


async def test_whatever_is_accepted_keeps_its_properties_over_retries_death_and_a_redrive(
    tmp_path: Path,
) -> None:
    chance = Random(7)
    async with cluster(broker_config(tmp_path, log_bytes=LOG_BYTES)) as running:
        client = running.client()
        await client.heartbeat()
        paths, answers = Paths(client), {}
        for number in range(42):
            body, properties = b"%d" % number, drawn(chance)
            if await SENDS[number % 3](client, body, encode_properties(properties)):
                answers[body] = properties
        by_send = [[body for body in answers if int(body) % 3 == send] for send in range(3)]
        assert all(3 < len(bodies) < 14 for bodies in by_send), "some are refused, some are not"

        def are_whole(messages: list[MessageExt]) -> None:
            for message in messages:
                said = {n: v for n, v in answers[message.body].items() if n not in ADDED}
                assert said.items() <= message.properties.items(), message.topic
                assert PROPERTY_LEFT_OUT not in message.properties

        now = await moved(paths, set(answers), TOPIC, 0)
        for times in range(1, 4):
            for message in now:
                await send_back(client, message, 1)
            now = await moved(paths, set(answers), RETRY, times)
            are_whole(now)
        for message in now:
            await send_back(client, message, -1)
        are_whole(await moved(paths, set(answers), DLQ, 4))
        await redrive_all(running)
        now = await moved(paths, set(answers), RETRY, 0)
        are_whole(now)
        for message in now:
            await send_back(client, message, 1)
        for message in await moved(paths, set(answers), RETRY, 1):
            await send_back(client, message, -1)
        are_whole(await moved(paths, set(answers), DLQ, 2))


async def redrive_all(running: Cluster, *, leave_out: bool = False, **words: str) -> None:
    """Give all dead letters to their group once more."""
    decision = {"who": "ä" * 64, "why": "w" * 512} | words
    admin = Admin(system_runtime(), client_config(running.name_server_address))
    try:
        letters = await admin.dead_letters.find(GROUP, DeadLetterQuery())
        await admin.dead_letters.redrive_all(
            letters, per_second=1000, leave_out=leave_out, **decision
        )
    finally:
        await admin.close()


async def test_what_leaves_no_room_is_refused_by_every_way_of_sending(tmp_path: Path) -> None:
    most = ROOMY_BYTES - OWN_BYTES
    too_long = filled(PROPERTIES_BYTES_MAX - OWN_BYTES)
    half = "TRAN_MSG\x01true\x02PGROUP\x01p\x02"
    async with cluster(broker_config(tmp_path, log_bytes=LOG_BYTES)) as running:
        client = running.client()
        await client.heartbeat()
        entry = Message(TOPIC, b"one", decode_properties(too_long))
        batch = bytes(encode_batch([Message(TOPIC, b"two", {}), entry]))
        answers = {
            "plain": await client.send(properties=too_long),
            "delayed": await client.send(properties=f"{too_long[:-200]}\x02DELAY\x011\x02"),
            "half": await client.send(properties=too_long[:-200] + "\x02" + half),
            "half that repeats its id": await client.send(
                properties=half + f"UNIQ_KEY\x01{'u' * 9500}\x02BIG\x01{'x' * 12_500}\x02"
            ),
            "batch": await client.send(batch, batch=True),
            "reply": await client.send(
                properties=too_long,
                code=RequestCode.SEND_REPLY_MESSAGE,
                topic="DefaultCluster_REPLY_TOPIC",
            ),
            "own copy": await client.send(properties=too_long, topic=RETRY, reconsumeTimes=1),
        }
        for way, answer in answers.items():
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL, f"{way}: {answer.remark}"
            refusal = re.search(REFUSAL, str(answer.remark))
            assert refusal, f"{way}: {answer.remark}"
            figures = [int(figure or 0) for figure in refusal.groups()]
            assert sum(figures[:3]) == figures[3] == PROPERTIES_BYTES_MAX + figures[4], way
            if way in {"plain", "own copy", "reply"}:
                assert figures[0] == PROPERTIES_BYTES_MAX - OWN_BYTES, "what the sender has sent"
        assert not await Paths(client).all_of(TOPIC), "nothing of the batch either"
        longest = await client.send(properties=filled(most))
        assert longest.code == ResponseCode.SUCCESS, longest.remark
        above = await client.send(properties=filled(most + 200))
        assert above.code == ResponseCode.MESSAGE_ILLEGAL, above.remark
        copied = (
            "RETRY_TOPIC\x01orders\x02ORIGIN_MESSAGE_ID\x01U1\x02DELAY\x011\x02WAIT\x01false\x02"
        )
        step = await client.send(
            properties=filled(most + len(copied), copied), topic=RETRY, reconsumeTimes=1
        )
        assert step.code == ResponseCode.SUCCESS, "a consumer's own copy has some of it already"


async def test_a_message_of_before_without_room_for_its_retry_is_a_dead_letter_that_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(broker_config(tmp_path, log_bytes=LOG_BYTES)) as running:
        client = running.client()
        await client.heartbeat()
        await client.send(b"makes the topic")
        store = running.broker.state.store
        paths, ids = Paths(client), {}
        for body, length in ((b"full", 32_700), (b"nearly", 31_500)):
            properties = filled(length, "SMALL\x01kept\x02")
            host = running.broker.address
            store.put(MessageDraft(TOPIC, 1, body, properties, 1, "127.0.0.1:1", host))

        async def both_there() -> bool:
            return len(await paths.all_of(TOPIC, 1)) == 2

        await eventually(both_there, "what the older version has stored")
        with caplog.at_level(logging.ERROR):
            for message in (await paths.all_of(TOPIC, 1)).values():
                ids[message.body] = message.offset_message_id
                await send_back(client, message, 1)
        (full,) = await moved(paths, {b"full"}, DLQ, 1)
        note = f"no room for properties 'BIG' ({BIG_BYTES} bytes); message {ids[b'full']} has them"
        assert full.properties[PROPERTY_LEFT_OUT] == note
        assert (full.properties["SMALL"], full.properties["DLQ_ORIGIN_TOPIC"]) == ("kept", TOPIC)
        assert "no room for properties 'BIG'" in caplog.text
        (nearly,) = await moved(paths, {b"nearly"}, RETRY, 1)
        await send_back(client, nearly, -1)
        (dead,) = await moved(paths, {b"nearly"}, DLQ, 2)
        assert len(dead.properties["BIG"]) > 31_000, "what fits is whole"
        with pytest.raises(ConfigError, match="at most 512 bytes"):
            await redrive_all(running, why="ü" * 257)
        with pytest.raises(RequestRefused, match="1 are re-driven, 1 stay dead letters") as stuck:
            await redrive_all(running, who="ann", why="mended")
        assert f"cannot be re-driven whole: it lacks what its message had ({note})" in str(
            stuck.value
        )
        (redriven,) = await moved(paths, {b"nearly"}, RETRY, 0)
        assert redriven.properties["BIG"] == dead.properties["BIG"], "what fits a record goes whole"
        assert PROPERTY_LEFT_OUT not in redriven.properties
        await redrive_all(running, leave_out=True, who="ann", why="without BIG")
        (lacking,) = await moved(paths, {b"full"}, RETRY, 0)
        assert lacking.properties[PROPERTY_LEFT_OUT] == note, "not in silence"
    steps = [row for row in spooled(tmp_path / "store", "retry_dlq_flow") if row["reason"]]
    why = "the properties of its retry are 32831 bytes, the limit is 32767; no room for properties"
    assert (steps[0]["step"], steps[0]["reason"]) == (
        "DEAD_LETTERED",
        f"{why} 'BIG' ({BIG_BYTES} bytes)",
    )


async def test_a_dead_letter_that_fills_its_record_goes_as_far_as_the_decision_leaves_room(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path, log_bytes=LOG_BYTES)) as running:
        client = running.client()
        await client.heartbeat()
        paths = Paths(client)
        await client.send(b"first")
        (first,) = await moved(paths, {b"first"}, TOPIC, 0)
        await send_back(client, first, -1)  # Makes the topic of dead letters.
        await moved(paths, {b"first"}, DLQ, 1)
        await redrive_all(running)
        brim = filled(
            PROPERTIES_BYTES_MAX - 200,
            *(f"RETRY_TOPIC\x01{TOPIC}\x02", "CLUSTER\x01DefaultCluster\x02"),
            *("MSG_REGION\x01DefaultRegion\x02", "TRACE_ON\x01true\x02"),
        )
        host = running.broker.address
        draft = MessageDraft(DLQ, 0, b"brim", brim, 1, "127.0.0.1:1", host, reconsume_times=2)
        running.broker.state.store.put(draft)
        (dead,) = await moved(paths, {b"brim"}, DLQ, 2)
        with pytest.raises(RequestRefused, match="1 stay dead letters") as stuck:
            await redrive_all(running, who="ann", why="w" * 400)
        refusal = str(stuck.value)
        assert "its properties have 32567 bytes, a re-drive adds 486 for" in refusal, refusal
        assert f"the longest is 'BIG' with {len(dead.properties['BIG']) + 5} bytes" in refusal
        await redrive_all(running, who="ann", why="w")
        (whole,) = await moved(paths, {b"brim"}, RETRY, 0)
        assert whole.properties["BIG"] == dead.properties["BIG"]
