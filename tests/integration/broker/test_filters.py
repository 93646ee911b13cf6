"""Row D3: which messages a pull brings, through a broker process that is killed and started again.

By hash of the one tag, by bits of several tags, by SQL92 over the properties.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.protocol.bodies import (
    CheckClientRequest,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
    TopicConfig,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.names import SysFlag, retry_topic
from tests.integration.broker.cluster import (
    GROUP,
    RawClient,
    bodies,
    broker_config,
    cluster,
    eventually,
    messages,
)
from tests.integration.broker.processes import Started, party, talk

PAINT = "paint"
SMALL = ("--set", "mappedFileSizeCommitLog=1048576", "--set", "maxIndexNum=1000")
AS_THE_REAL_ONE = ("--set", "enablePropertyFilter=true")
NO_SUPPORT = "The broker does not support consumer to filter message by SQL92"


@contextmanager
def broker(folder: Path, *options: str) -> Iterator[Started]:
    """A broker process on the store below `folder`."""
    store = str(folder / "store")
    with party(
        folder / "log", "broker", "--store", store, "--port", "0", *SMALL, *options
    ) as running:
        yield running


async def pulled(client: RawClient, expression: str, **more: object) -> tuple[list[bytes], int]:
    """Bodies of all that a pull from 0 with this subscription brings, and where the next begins."""
    answer = await client.pull(0, topic=PAINT, subscription=expression, **more)
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY), answer.remark
    return bodies(answer), int(answer.fields["nextBeginOffset"])


def wants(expression: str, version: int = 1) -> SubscriptionData:
    return SubscriptionData.by_selector(PAINT, expression, "SQL92", sub_version=version)


async def heartbeat(client: RawClient, *subscriptions: SubscriptionData) -> None:
    data = ConsumerData(GROUP, subscription_data_set=list(subscriptions))
    body = HeartbeatData(client.client_id, consumer_data_set=[data])
    answer = await client.ask(RequestCode.HEART_BEAT, body.encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def pull_as_member(client: RawClient, version: int = 1) -> RemotingCommand:
    """A pull that relies on what the group's heartbeats said."""
    return await client.pull(
        0, topic=PAINT, sysFlag=0, subVersion=version, expressionType="SQL92", subscription=""
    )


def test_row_d3_by_tag_the_broker_tests_hashes_and_offsets_pass_over_the_rest(
    tmp_path: Path,
) -> None:
    async def send(client: RawClient) -> None:
        for tags in ("TagA", "", "BBBB", "AaAa", "TagA||TagB"):
            properties = {"TAGS": tags} if tags else {}
            await client.send(tags.encode(), topic=PAINT, **properties)

    async def look(client: RawClient) -> None:
        assert await pulled(client, "TagA") == ([b"TagA"], 5)
        assert await pulled(client, "TagA || AaAa") == ([b"TagA", b"BBBB", b"AaAa"], 5)
        assert await pulled(client, "TagX") == ([], 5), "RETRY_IMMEDIATELY behind the filtered ones"
        assert len((await pulled(client, "*"))[0]) == 5, "only * brings what has no tag"
        answer = await client.pull(0, topic=PAINT, subscription="||")
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    with broker(tmp_path) as running:
        talk(running.address, send)
        talk(running.address, look)
        running.kill()
    with broker(tmp_path) as running:
        talk(running.address, look)


def test_row_d3_a_heartbeat_without_codes_takes_nothing_by_hash_as_in_rocketmq(
    tmp_path: Path,
) -> None:
    async def pull_by_hash(client: RawClient) -> None:
        await client.send(b"1", topic=PAINT, TAGS="TagA")
        subscription = SubscriptionData(PAINT, "TagA", sub_version=1)
        await heartbeat(client, subscription)
        answer = await client.pull(0, topic=PAINT, sysFlag=0, subVersion=1)
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY

    with broker(tmp_path) as running:
        talk(running.address, pull_by_hash)


def test_row_d3_with_bits_a_message_carries_several_tags_even_when_its_queue_is_built_anew(
    tmp_path: Path,
) -> None:
    async def send(client: RawClient) -> None:
        made = await client.make_topic(PAINT, "+message.tag.filter=BITMAP")
        assert made.code == ResponseCode.SUCCESS, made.remark
        for tags in ("red||big", "red", "small || round", ""):
            properties = {"TAGS": tags} if tags else {}
            await client.send(tags.encode(), topic=PAINT, **properties)
        await client.send(b"late", topic=PAINT, TAGS="blue||big", DELAY="1")

        async def delivered() -> bool:
            return len((await pulled(client, "*"))[0]) == 5

        await eventually(delivered, "the delayed message")

    async def look(client: RawClient) -> None:
        assert await pulled(client, "red") == ([b"red||big", b"red"], 5)
        assert await pulled(client, "big") == ([b"red||big", b"late"], 5)
        assert await pulled(client, "round||blue") == ([b"small || round", b"late"], 5)
        assert await pulled(client, "green") == ([], 5)
        flags = [
            m.sys_flag & SysFlag.MULTI_TAGS for m in messages(await client.pull(0, topic=PAINT))
        ]
        assert all(flags), "clients see that TAGS may hold several"

    delays = ("--set", "messageDelayLevel=1s")
    with broker(tmp_path, *delays) as running:
        talk(running.address, send)
        talk(running.address, look)
        running.kill()
    with broker(tmp_path, *delays) as running:
        talk(running.address, look)
        running.kill()
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    for file in (tmp_path / "store" / "config").glob("topics.json*"):
        file.unlink()  # The attribute is lost: the log says it all.
    with broker(tmp_path, *delays) as running:
        talk(running.address, lambda client: client.make_topic(PAINT))
        talk(running.address, look)
        talk(running.address, lambda client: client.send(b"red", topic=PAINT, TAGS="red"))
        answer = talk(running.address, lambda client: pulled(client, "red"))
        assert answer == ([b"red||big", b"red", b"red"], 6), "both forms in one queue"


def test_row_d3_how_a_topic_filters_tags_is_fixed_once_it_holds_messages(tmp_path: Path) -> None:
    async def refused(client: RawClient) -> None:
        for change in ("-message.tag.filter", "+message.tag.filter=HASH"):
            answer = await client.make_topic(PAINT, change)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark is not None
            assert "holds messages filtered by BITMAP; make a new topic" in answer.remark
        config = await client.ask(RequestCode.GET_TOPIC_CONFIG, topic=PAINT)
        assert TopicConfig.decode(config.body).attributes == {"message.tag.filter": "BITMAP"}

    async def before(client: RawClient) -> None:
        assert (await client.make_topic(PAINT)).code == ResponseCode.SUCCESS
        changed = await client.make_topic(PAINT, "+message.tag.filter=BITMAP")
        assert changed.code == ResponseCode.SUCCESS, "an empty topic may change"
        unknown = await client.make_topic(PAINT, "+message.tag.filter=BLOOM")
        assert "value is not in set: ['HASH', 'BITMAP']" in str(unknown.remark)
        await client.send(b"red", topic=PAINT, TAGS="red")
        await refused(client)

        async def written() -> bool:
            return "BITMAP" in (tmp_path / "store" / "config" / "topics.json").read_text()

        await eventually(written, "topics.json holds the attribute")

    async def after(client: RawClient) -> None:
        await refused(client)
        assert (await client.make_topic(PAINT, "+message.type=NORMAL")).code == 0, "other changes"
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=PAINT)
        assert (await client.make_topic(PAINT)).code == ResponseCode.SUCCESS
        await client.send(b"TagA", topic=PAINT, TAGS="TagA||TagB")
        assert await pulled(client, "TagA") == ([], 1), "one tag a message again"

    with broker(tmp_path) as running:
        talk(running.address, before)
        running.kill()
    with broker(tmp_path) as running:
        talk(running.address, after)


def test_row_d3_by_sql92_the_broker_evaluates_properties_and_keeps_selectors(
    tmp_path: Path,
) -> None:
    async def send(client: RawClient) -> None:
        for number in range(6):
            color = "red" if number % 2 else "blue"
            await client.send(b"%d" % number, topic=PAINT, N=str(number), COLOR=color)
        await client.send(b"bare", topic=PAINT)

    async def look(client: RawClient) -> None:
        by_sql = {"expressionType": "SQL92"}
        assert await pulled(client, "N > 2 AND COLOR = 'red'", **by_sql) == ([b"3", b"5"], 7)
        assert await pulled(client, "COLOR <> 'red'", **by_sql) == ([b"0", b"2", b"4"], 7)
        assert await pulled(client, "COLOR IS NULL", **by_sql) == ([b"bare"], 7)
        assert await pulled(client, "COLOR > 5", **by_sql) == ([], 7), "an error matches nothing"
        wrong = await client.pull(0, topic=PAINT, subscription="N >", **by_sql)
        assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "parse the consumer's subscription failed" in str(wrong.remark)

    async def subscribe(client: RawClient) -> None:
        await heartbeat(client, wants("N > 3", 7))
        assert bodies(await pull_as_member(client, 7)) == [b"4", b"5"]
        kept = tmp_path / "store" / "config" / "consumerFilter.json"

        async def written() -> bool:
            return kept.exists() and "N > 3" in kept.read_text()

        await eventually(written, "consumerFilter.json")

    async def come_back(client: RawClient) -> None:
        assert (await pull_as_member(client, 7)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        await heartbeat(client, wants("N > 4", 6))
        assert bodies(await pull_as_member(client, 6)) == [b"4", b"5"], "older than what was kept"
        await heartbeat(client, wants("N > 3", 7))
        assert bodies(await pull_as_member(client, 7)) == [b"4", b"5"]

    with broker(tmp_path, *AS_THE_REAL_ONE) as running:
        talk(running.address, send)
        talk(running.address, look)
        talk(running.address, subscribe)
        running.kill()
    with broker(tmp_path, *AS_THE_REAL_ONE) as running:
        talk(running.address, come_back)
        talk(running.address, look)
        running.stop()
    table = json.loads((tmp_path / "store" / "config" / "consumerFilter.json").read_text())
    entry = table["filterDataByTopic"][PAINT]["groupFilterData"][GROUP]
    assert (entry["expression"], entry["clientVersion"]) == ("N > 3", 7)
    assert entry["deadTime"] >= entry["bornTime"], "nobody was there any more"


def test_row_d3_selectors_that_are_missing_old_or_switched_off_are_refused_by_rocketmqs_codes(
    tmp_path: Path,
) -> None:
    async def check(client: RawClient, data: SubscriptionData) -> tuple[int, str]:
        body = CheckClientRequest(client.client_id, GROUP, data).encode()
        answer = await client.ask(RequestCode.CHECK_CLIENT_CONFIG, body)
        return answer.code, str(answer.remark)

    async def switched_off(client: RawClient) -> None:
        await client.send(b"1", topic=PAINT, N="1")
        refused = (ResponseCode.SYSTEM_ERROR, NO_SUPPORT)
        reported = await client.pull(0, topic=PAINT, subscription="N > 0", expressionType="SQL92")
        assert (reported.code, reported.remark) == refused
        assert await check(client, wants("N > 0")) == refused
        assert (await check(client, SubscriptionData.build(PAINT, "red")))[0] == 0
        await heartbeat(client, wants("N > 0"))
        answer = await pull_as_member(client)
        assert (answer.code, answer.remark) == refused

    async def switched_on(client: RawClient) -> None:
        assert (await check(client, wants("N > 0")))[0] == ResponseCode.SUCCESS
        code, remark = await check(client, wants("N > 'x'"))
        assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "numbers and properties only" in remark
        await heartbeat(client, wants("N >", 3))
        answer = await pull_as_member(client, 3)
        assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
        await heartbeat(client, wants("N > 0", 4))
        assert bodies(await pull_as_member(client, 4)) == [b"1"]
        answer = await pull_as_member(client, 5)
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await heartbeat(client, SubscriptionData(PAINT, "", sub_version=6, expression_type="SQL92"))
        answer = await pull_as_member(client, 6)
        assert answer.code == ResponseCode.FILTER_DATA_NOT_LATEST

    with broker(tmp_path) as running:
        talk(running.address, switched_off)
        running.stop()
    with broker(tmp_path, *AS_THE_REAL_ONE) as running:
        talk(running.address, switched_on)


@pytest.mark.parametrize(("supported", "expected"), [(True, [b"7"]), (False, [b"7", b"1"])])
async def test_row_d3_failed_messages_are_selected_as_the_topic_they_came_from_where_that_is_on(
    tmp_path: Path, supported: bool, expected: list[bytes]
) -> None:
    settings = {"enable_property_filter": True, "filter_support_retry": supported}
    async with cluster(broker_config(tmp_path, **settings)) as running:
        client, retry = running.client(), retry_topic(GROUP)
        every = SubscriptionData.by_selector(retry, "TRUE", "SQL92", sub_version=1)
        await heartbeat(client, wants("N > 3"), every)
        for number in (7, 1):
            sent = await client.send(b"%d" % number, topic=retry, RETRY_TOPIC=PAINT, N=str(number))
            assert sent.code == ResponseCode.SUCCESS, sent.remark
        answer = await client.pull(0, topic=retry, sysFlag=0, expressionType="SQL92")
        assert bodies(answer) == expected
