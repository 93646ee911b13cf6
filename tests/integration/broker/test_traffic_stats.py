"""Row C1 and figures: what tools read about traffic is what clients did, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from engine.protocol import fastjson
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.runtime import system_runtime
from tests.integration.broker.cluster import GROUP, TOPIC, RawClient, broker_config, cluster

CASES = json.loads((Path(__file__).parents[2] / "cases" / "broker_figures.json").read_text())


async def stats(client: RawClient, name: str, key: str) -> RemotingCommand:
    return await client.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)


async def day(client: RawClient, name: str, key: str) -> tuple[int, float]:
    answer = await stats(client, name, key)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    decoded: dict[str, Any] = json.loads(answer.body)
    assert sorted(decoded) == ["statsDay", "statsHour", "statsMinute"]
    assert decoded["statsMinute"] == decoded["statsHour"] | {"tps": decoded["statsMinute"]["tps"]}
    return decoded["statsDay"]["sum"], decoded["statsDay"]["avgpt"]


async def test_puts_and_gets_are_counted_by_topic_group_and_broker(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        for number in range(6):
            await client.send(b"x" * 100, queue_id=number % 2)
        await client.heartbeat()
        assert (await client.pull(0)).code == ResponseCode.SUCCESS
        assert (await client.pull(0, queue_id=1)).code == ResponseCode.SUCCESS
        assert await day(client, "TOPIC_PUT_NUMS", TOPIC) == (6, 1.0)
        size_bytes, _ = await day(client, "TOPIC_PUT_SIZE", TOPIC)
        assert await day(client, "GROUP_GET_NUMS", f"{TOPIC}@{GROUP}") == (6, 3.0)
        assert await day(client, "GROUP_GET_SIZE", f"{TOPIC}@{GROUP}") == (
            size_bytes,
            round(size_bytes / 2, 2),
        )
        assert await day(client, "BROKER_PUT_NUMS", "DefaultCluster") == (6, 1.0)
        assert await day(client, "BROKER_GET_NUMS", "DefaultCluster") == (6, 3.0)
        for name, key in (
            ("TOPIC_PUT_NUMS", "unheard"),
            ("GROUP_GET_NUMS", f"{TOPIC}@nobody"),
            ("NO_SUCH_STATISTIC", TOPIC),
        ):
            missing = await stats(client, name, key)
            assert missing.code == ResponseCode.SYSTEM_ERROR
            assert missing.remark == f"The stats <{name}> <{key}> not exist"


async def test_every_groups_progress_is_returned_at_once(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        for _ in range(5):
            await client.send()
        await client.heartbeat()
        await client.pull(0)
        await client.commit(2)
        answer = await client.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder=False)
        decoded: Any = fastjson.loads(answer.body)
        (mine,) = [one[GROUP] for one in decoded["consumeStatsList"] if GROUP in one]
        marks = [
            (row["brokerOffset"], row["consumerOffset"], row["pullOffset"])
            for row in mine[0]["offsetTable"].values()
        ]
        assert sorted(marks) == [(0, 0, 0)] * 3 + [(5, 2, 5)]
        assert (decoded["totalDiff"], decoded["totalInflightDiff"]) == (3, 3)
        assert decoded["brokerAddr"] == running.broker.address
        ordered = await client.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder=True)
        decoded = fastjson.loads(ordered.body)
        assert decoded["totalDiff"] == 0, "the topic is no ordered one"


async def test_the_runtime_figures_have_rocketmqs_names_and_are_true(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        for _ in range(4):
            await client.send(b"x" * 100)
        await client.heartbeat()
        await client.pull(0)
        await client.pull(4)
        answer = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        decoded: dict[str, str] = json.loads(answer.body)["table"]
        theirs = {key for key in CASES["runtime_info_keys"] if "scheduleMessage" not in key}
        assert theirs <= decoded.keys()
        assert re.fullmatch(r"\d+\.\d\d", decoded["putLatency99"])
        assert decoded["putMessageDistributeTime"].count(":0 ") == 13, "the first minute goes on"
        assert int(decoded["putMessageEntireTimeMax"]) < 60_000
        assert decoded["putMessageFailedTimes"] == "0"
        assert decoded["putMessageTimesTotal"] == decoded["msgPutTotalTodayNow"] == "4"
        assert decoded["msgGetTotalTodayNow"] == "4"
        assert decoded["putMessageSizeTotal"] == decoded["commitLogMaxOffset"]
        assert float(decoded["putMessageAverageSize"]) * 4 == int(decoded["commitLogMaxOffset"])
        rates = [float(rate) for rate in decoded["putTps"].split(" ")]
        assert len(rates) == 3
        assert min(rates) > 0
        assert float(decoded["getMissTps"].split(" ")[0]) > 0
        now_ms = system_runtime().clock.now_ms()
        assert 0 <= now_ms - int(decoded["earliestMessageTimeStamp"]) < 60_000
        assert re.fullmatch(r"\[ 0 days, 0 hours, 0 minutes, \d+ seconds \]", decoded["runtime"])
        assert re.fullmatch(r"Total : .+ GiB, Free : .+ GiB\.", decoded["commitLogDirCapacity"])
        store = tmp_path / "store" / "commitlog"
        assert decoded[f"commitLogDiskRatio_{store}"] == decoded["commitLogDiskRatio"]
