"""Metrics under the names of rocketmq-exporter: boards made for it find them, and they are true."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.client.consuming.listeners import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from engine.protocol.codes import RequestCode
from tests.integration.broker.cluster import cluster, eventually
from tests.integration.broker.scraping import of, scraped, with_metrics
from tests.integration.client.cluster_users import Seen, consumer_config, consuming

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
RECONSUME_LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
IN_ORDER = ConsumeOrderlyStatus.SUCCESS
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


async def test_boards_made_for_the_exporter_find_their_names(tmp_path: Path) -> None:
    async with cluster(with_metrics(tmp_path)) as running:
        client = running.client()
        for _ in range(6):
            await client.send()
        await client.heartbeat()
        await client.pull(0)
        await client.commit(2)
        samples = {
            sample.name: (sample.labels, sample.value)
            for family in text_string_to_metric_families(await scraped(of(running)))
            for sample in family.samples
            if "node_id" not in sample.labels
        }
        place = {"cluster": "DefaultCluster", "broker": "broker-a"}
        pair = place | {"topic": "orders", "group": "orders-group"}
        diff = {"group": "orders-group", "topic": "orders"}
        online = {"countOfOnlineConsumers": "1", "msgModel": "CLUSTERING"}
        assert samples["rocketmq_group_diff"] == (diff | online, 4)
        assert samples["rocketmq_message_accumulation"] == (pair, 4)
        assert samples["rocketmq_group_get_latency"][0] == pair
        assert samples["rocketmq_consumer_offset"] == (pair, 6)
        assert samples["rocketmq_group_consume_total_offset"] == (pair, 2)
        assert samples["rocketmq_producer_offset"] == (place | {"topic": "orders"}, 6)
        assert samples["rocketmq_group_count"][1] == 1
        ip = {"brokerIP": running.broker.address}
        assert samples["rocketmq_broker_tps"][0] == place | ip
        for rate in (
            *("broker_tps", "broker_qps", "producer_tps", "producer_message_size"),
            *("consumer_tps", "consumer_message_size", "group_get_latency_by_storetime"),
            "group_get_latency",
        ):
            assert samples[f"rocketmq_{rate}"][1] > 0, rate


async def test_what_clients_say_of_their_consuming_is_reported_until_they_leave(
    tmp_path: Path,
) -> None:
    async with cluster(with_metrics(tmp_path, window_sample_interval_ms=50)) as running:
        client, silent = running.client("c1"), running.client("c2")
        await client.send()
        client.status_table = {
            "orders": {
                "pullRT": 12.5,
                "pullTPS": 3.25,
                "consumeRT": 7,
                "consumeOKTPS": 3,
                "consumeFailedTPS": 0.0,
                "consumeFailedMsgs": 41,
            },
            "%RETRY%orders-group": {"pullTPS": 0.5, "consumeRT": None},
            "nobody-has-it": {"pullTPS": 1},
        }

        async def is_reported() -> dict[str, dict[str, float]]:
            found: dict[str, dict[str, float]] = {}
            for family in text_string_to_metric_families(await scraped(of(running))):
                for sample in family.samples:
                    if sample.name.startswith("rocketmq_client_"):
                        labels = dict(sample.labels)
                        topic = labels.pop("topic")
                        found.setdefault(topic, {})[sample.name[16:]] = sample.value
                        address = labels.pop("clientAddr")
                        assert address.startswith("127.0.0.1:")
                        assert labels == {"clientId": "c1", "group": "orders-group"}
            return found

        async def some() -> bool:
            return bool(await is_reported())

        async def none() -> bool:
            return not await is_reported()

        for one in (client, silent):
            await one.heartbeat()
        await eventually(some, "the client's figures are reported")
        assert await is_reported() == {
            "orders": {
                "consumer_pull_rt": 12.5,
                "consumer_pull_tps": 3.25,
                "consume_rt": 7,
                "consume_ok_msg_tps": 3,
                "consume_fail_msg_tps": 0,
                "consume_fail_msg_count": 41,
            },
            "%RETRY%orders-group": {"consumer_pull_tps": 0.5},
        }
        client.running_info = {"nonsense": 0}
        await eventually(none, "who does not answer in words says nothing")
        client.running_info = {}
        await eventually(some, "it answers again")
        await client.close()
        await eventually(none, "its figures end with it")
        running.clients.remove(client)


async def test_the_runtime_info_is_returned_under_the_exporters_names(tmp_path: Path) -> None:
    async with cluster(with_metrics(tmp_path)) as running:
        client = running.client()
        for _ in range(6):
            await client.send()
        await client.pull(0)
        info = json.loads((await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        samples = {
            sample.name.removeprefix("rocketmq_brokeruntime_"): sample
            for family in text_string_to_metric_families(await scraped(of(running)))
            for sample in family.samples
            if sample.name.startswith("rocketmq_brokeruntime_")
        }
        value = {name: sample.value for name, sample in samples.items()}
        assert value["msg_put_total_today_now"] == value["putmessage_times_total"] == 6
        assert value["msg_gettotal_today_now"] == 6
        assert value["commitlog_maxoffset"] == int(info["commitLogMaxOffset"]) > 0
        assert value["earliest_message_timestamp"] == int(info["earliestMessageTimeStamp"])
        assert value["commitlog_disk_ratio"] == float(info["commitLogDiskRatio"])
        assert value["commitlogdir_capacity_total"] > value["commitlogdir_capacity_free"] > 0
        assert value["put_tps10"] >= value["put_tps600"] > value["getmiss_tps60"] == 0
        assert len([name for name in value if name.startswith("pmdt_")]) == 13
        (labels,) = {tuple(sorted(sample.labels.items())) for sample in samples.values()}
        assert dict(labels) == {
            "cluster": "DefaultCluster",
            "brokerIP": running.broker.address,
            "brokerHost": "",
            "des": "V5_5_0",
            "boottime": info["bootTimestamp"],
            "broker_version": "513",
        }


@pytest.mark.parametrize("orderly", [False, True])
async def test_our_own_consumers_report_how_fast_they_are(tmp_path: Path, orderly: bool) -> None:
    answers = [RECONSUME_LATER, SUCCESS] if not orderly else [SUSPEND, IN_ORDER]
    seen = Seen(lambda *_: answers[min(1, len(seen.messages) - 1)])
    async with cluster(with_metrics(tmp_path, window_sample_interval_ms=50)) as running:
        names, sender = running.name_server_address, running.client()
        for _ in range(8):
            await sender.send(queue_id=1)
        config = consumer_config(orderly=orderly, consume_batch_max=1, suspend_queue_ms=50)

        async def is_reported() -> dict[str, float]:
            families = text_string_to_metric_families(await scraped(of(running)))
            samples = [sample for family in families for sample in family.samples]
            of_orders = [sample for sample in samples if sample.labels.get("topic") == "orders"]
            return {sample.name: sample.value for sample in of_orders}

        async def all_consumed() -> bool:
            at = await is_reported()
            ok, failed = "consume_ok_msg_tps", "consume_fail_msg_count"
            rate = at.get(f"rocketmq_client_{ok}", 0)
            return rate >= 7 / 60 and at[f"rocketmq_client_{failed}"] == 1

        async with consuming(names, "orders-group", {"orders": seen}, config=config):
            await eventually(all_consumed, "seven or eight in a minute, and one failure")
            figures = await is_reported()
            assert figures["rocketmq_client_consumer_pull_tps"] >= 8 / 60
            assert figures["rocketmq_client_consumer_pull_rt"] >= 0
            assert figures["rocketmq_client_consume_fail_msg_tps"] > 0
