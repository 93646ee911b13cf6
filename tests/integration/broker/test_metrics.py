"""Prometheus metrics: what a scrape returns is what clients did, under RocketMQ 5's names, read by
Prometheus' own parser."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from engine.admin import Admin
from engine.protocol.codes import RequestCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import MessageExt
from engine.runtime import system_runtime
from tests.integration.broker.cluster import RawClient, cluster
from tests.integration.broker.processes import party, refusal
from tests.integration.broker.scraping import of, scraped, values, with_metrics
from tests.integration.broker.transactor import COMMIT, ROLLBACK, UNKNOWN, Transactor
from tests.integration.client.cluster_users import (
    LATER,
    SUCCESS,
    client_config,
    consumer_config,
    consuming,
    eventually,
    producing,
    text,
)

CASES = json.loads((Path(__file__).parents[2] / "cases" / "broker_figures.json").read_text())
SIZE_LABELS = ("topic", "message_type", "is_system")  # Ours is one histogram of the broker.


async def test_a_scrape_returns_what_real_clients_did(tmp_path: Path) -> None:
    async with cluster(with_metrics(tmp_path, delay_levels_ms=(50,) * 4)) as running:
        names, topic, group = running.name_server_address, "Metered", "metered_c"
        async with Admin(system_runtime(), client_config(names)) as admin:
            await admin.topics.create(running.broker.address, topic, read_queues=2, write_queues=2)

            async def known() -> bool:
                return await admin.topics.route(topic) is not None

            await eventually(known, "a route")
        seen: list[bytes] = []

        def listen(messages: list[MessageExt], context: object) -> object:
            seen.extend(message.body for message in messages)
            return LATER if messages[0].body == b"bad" else SUCCESS

        async with producing(names, "metered_p") as producer:
            once = consumer_config(max_reconsume_times=1)
            async with consuming(names, group, {topic: listen}, config=once):
                for number in range(10):
                    await producer.send(text(topic, f"m{number}"))
                await producer.send(text(topic, "bad"))
                await producer.send(text(topic, "late", DELAY="1"))

                async def buried() -> bool:
                    figures = await values(of(running))
                    key = ("rocketmq_send_to_dlq_messages_total", topic, group)
                    return len(seen) >= 13 and figures.get(key) == 1

                await eventually(buried, "every message was seen and one died")
                live = await values(of(running))
                assert live["rocketmq_consumer_connections", "", group] == 1
                assert live["rocketmq_producer_connections", "", ""] >= 1
            await producer.send(text(topic, "after"))
            figures = await values(of(running))
        assert figures["rocketmq_messages_in_total", topic, ""] == 13
        assert figures["rocketmq_messages_out_total", topic, group] == 12
        assert figures["rocketmq_messages_out_total", f"%RETRY%{group}", group] == 1
        assert figures["rocketmq_consumer_lag_messages", topic, group] == 1
        assert figures["rocketmq_consumer_ready_messages", topic, group] == 1
        assert figures["rocketmq_consumer_inflight_messages", topic, group] == 0
        assert figures["rocketmq_consumer_lag_latency_milliseconds", topic, group] >= 0
        assert figures["rocketmq_throughput_in_total", topic, ""] > 13 * 91
        assert figures["rocketmq_messages_in_total", f"%RETRY%{group}", ""] == 1
        assert figures["rocketmq_messages_in_total", f"%DLQ%{group}", ""] == 1
        assert figures["rocketmq_message_size_count", "", ""] == 15
        assert figures["rocketmq_broker_permission", "", ""] == 6
        assert figures["rocketmq_storage_dispatch_behind_bytes", "", ""] == 0
        types = [
            (sample.labels["message_type"], sample.value)
            for family in text_string_to_metric_families(await scraped(of(running)))
            for sample in family.samples
            if sample.name == "rocketmq_messages_in_total" and sample.labels["topic"] == topic
        ]
        assert sorted(types) == [("delay", 1), ("normal", 12)]


async def test_requests_are_timed_by_their_codes_and_a_new_life_begins_anew(tmp_path: Path) -> None:
    async def life(end: int) -> dict[tuple[str, ...], float]:
        async with cluster(with_metrics(tmp_path)) as running:
            client = running.client()
            for _ in range(3):
                await client.send()
            await client.pull(0)
            await client.pull(end, wait_ms=200)
            assert (await client.ask(424_242)).code == 3
            commit = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 1}
            request = RemotingCommand.request(
                RequestCode.UPDATE_CONSUMER_OFFSET, {k: str(v) for k, v in commit.items()}
            )
            await client.rpc.invoke_oneway(client.address, request)
            await client.committed()
            samples = [
                sample
                for family in text_string_to_metric_families(await scraped(of(running)))
                for sample in family.samples
                if sample.name.startswith("rocketmq_rpc_latency_milliseconds")
            ]
        bounds = [one.labels["le"] for one in samples if "le" in one.labels]
        assert " ".join(bounds[:10]) == "1.0 3.0 5.0 7.0 10.0 100.0 1000.0 2000.0 3000.0 +Inf"
        names = ("request_code", "response_code", "is_long_polling", "result")
        counts = {
            tuple(one.labels[name] for name in names): one.value
            for one in samples
            if one.name.endswith("_count")
        }
        held_ms = [
            one.value
            for one in samples
            if one.name.endswith("_sum") and one.labels["is_long_polling"] == "true"
        ]
        assert held_ms[0] >= 150, "the hold is part of it"
        return counts

    first = await life(3)
    for expected in (first, await life(6)):
        assert expected["send_message", "success", "false", "success"] == 3
        assert expected["pull_message", "success", "false", "success"] == 1
        assert expected["pull_message", "pull_not_found", "true", "success"] == 1
        assert expected["update_consumer_offset", "success", "false", "oneway"] == 1
        assert expected["unknown", "request_code_not_supported", "false", "success"] == 1


async def test_transactions_are_counted_by_how_they_ended(tmp_path: Path) -> None:
    async with cluster(with_metrics(tmp_path)) as running:
        producer = Transactor(running.client())
        for name, end in (("a", COMMIT), ("b", COMMIT), ("c", ROLLBACK)):
            await producer.end(await producer.begin(name), end)
        figures = await values(of(running))
        assert figures["rocketmq_messages_in_total", "orders", ""] == 3
        assert figures["rocketmq_commit_messages_total", "orders", ""] == 2
        assert figures["rocketmq_rollback_messages_total", "orders", ""] == 1


async def test_open_transactions_and_the_age_of_committed_ones_are_reported_over_a_restart(
    tmp_path: Path,
) -> None:
    name, finish = "rocketmq_half_messages", "rocketmq_finish_message_latency_milliseconds"
    async with cluster(with_metrics(tmp_path)) as running:
        producer = Transactor(running.client())
        assert (name, "orders", "") not in await values(of(running))
        open_half, *others = [await producer.begin(key) for key in "abcd"]
        assert (await values(of(running)))[name, "orders", ""] == 4
        born_ms = running.broker.state.clock.now_ms()
        for ago_ms in (61_500, -600_000):  # The second one's clock is ahead.
            others.append(await producer.begin("e", bornTimestamp=born_ms - ago_ms))
        for half, how in zip(others, (COMMIT, ROLLBACK, UNKNOWN, COMMIT, COMMIT), strict=True):
            await producer.end(half, how)
        figures = await values(of(running))
        assert figures[name, "orders", ""] == 2
        assert figures["rocketmq_commit_messages_total", "orders", ""] == 3
        assert figures[f"{finish}_count", "orders", ""] == 2, "no age is made up"
        assert figures[f"{finish}_sum", "orders", ""] == 61
        buckets = {
            sample.labels["le"]: sample.value
            for family in text_string_to_metric_families(await scraped(of(running)))
            for sample in family.samples
            if sample.name == f"{finish}_bucket"
        }
        assert buckets == {
            "5.0": 1,
            "60.0": 1,
            "600.0": 2,
            "3600.0": 2,
            "43200.0": 2,
            "86400.0": 2,
            "+Inf": 2,
        }
    async with cluster(with_metrics(tmp_path)) as running:
        figures = await values(of(running))
        assert figures[name, "orders", ""] == 2
        assert (f"{finish}_count", "orders", "") not in figures
        producer = Transactor(running.client())
        for half in (open_half, others[2]):
            await producer.end(half, ROLLBACK)
        assert (await values(of(running)))[name, "orders", ""] == 0


NOT_MEASURED = (
    "rocketmq_pop_",  # no pop consumption
    "rocketmq_processor_watermark",  # no thread pools
    "rocketmq_topic_create_execution_time_",
)


async def test_families_and_labels_are_those_of_rocketmq(tmp_path: Path) -> None:
    async with cluster(with_metrics(tmp_path)) as running:
        client = running.client()
        await client.send()
        await client.heartbeat()
        await client.pull(0)
        await client.commit(0)
        ours = {
            family.name.removesuffix("_total") + "_total" * (family.type == "counter"): family
            for family in text_string_to_metric_families(await scraped(of(running)))
        }
        for name, theirs in CASES["metric_families"].items():
            if name.startswith(NOT_MEASURED):
                assert name not in ours
                continue
            assert ours[name].type == theirs["type"]
            for sample in ours[name].samples:
                labels = [label for label in sample.labels if label != "le"]
                per_topic = SIZE_LABELS if name == "rocketmq_message_size" else ()
                assert sorted(labels) == sorted({*theirs["labels"]}.difference(per_topic)), name


async def test_queues_nobody_may_read_any_more_are_distinguished_from_lag(tmp_path: Path) -> None:
    """Row C1."""
    async with cluster(with_metrics(tmp_path)) as running:
        client = running.client()
        for queue_id in (0, 3, 3):
            await client.send(queue_id=queue_id)
        for queue_id in range(4):
            await client.commit(0, queue_id=queue_id)
        fields = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "force": True}
        await client.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic="orders",
            readQueueNums=3,
            writeQueueNums=3,
            perm=6,
            defaultTopic="TBW102",
            **fields,
        )
        figures = await values(of(running))
        assert figures["rocketmq_consumer_lag_messages", "orders", "orders-group"] == 1
        assert figures["tidemark_consumer_unreadable_messages", "orders", "orders-group"] == 2


async def test_a_group_whose_next_message_is_deleted_waits_since_the_oldest_kept(
    tmp_path: Path,
) -> None:
    config = with_metrics(tmp_path, log_bytes=16 * 1024)
    async with cluster(config) as running:
        client = running.client()
        for _ in range(40):
            await client.send(bytes(1000))
        await client.commit(3)
        for path in (tmp_path / "store" / "commitlog").iterdir():
            os.utime(path, (1, 1))
        await client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)

        async def moved() -> bool:
            answer = await client.ask(RequestCode.GET_MIN_OFFSET, topic="orders", queueId=0)
            return int(answer.fields["offset"]) > 3

        await eventually(moved, "the first messages are deleted")
        figures = await values(of(running))
        for name in ("lag", "queueing"):
            latency = f"rocketmq_consumer_{name}_latency_milliseconds"
            assert figures[latency, "orders", "orders-group"] > 0


async def raw(address: str, data: bytes) -> bytes:
    """What the port answers to these bytes, until it ends the connection."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    answer = await reader.read()
    writer.close()
    return answer


async def test_whatever_is_sent_to_the_port_the_broker_goes_on(tmp_path: Path) -> None:
    async with cluster(with_metrics(tmp_path)) as running:
        address, client = of(running), running.client()
        for data, status in (
            (b"GET /metrics HTTP/1.1\r\n\r\n", b"200 OK"),
            (b"HEAD /metrics HTTP/1.0\r\n\r\n", b"200 OK"),
            (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", b"404 Not Found"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
            (b"\xff\x00nonsense\r\n\r\n", b"400 Bad Request"),
            (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9000, b"431 Request Header"),
        ):
            answer = await raw(address, data)
            assert answer.split(b" ", 1)[1].startswith(status), (data[:30], answer[:60])
        idle = [await asyncio.open_connection(*address.split(":")) for _ in range(16)]
        assert b" 503 " in await raw(address, b"GET /metrics HTTP/1.1\r\n\r\n")
        late = await asyncio.open_connection(*address.split(":"))
        assert (await client.send()).code == 0, "the refusal has had its time to come too early"
        late[1].write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b" 503 " in await late[0].read()
        idle += [late, *[await asyncio.open_connection(*address.split(":")) for _ in range(48)]]
        idle.append(await asyncio.open_connection(*address.split(":")))
        with contextlib.suppress(ConnectionError):
            assert await idle[-1][0].read() == b"", "cut off without a word"
        for _, writer in idle:
            writer.close()

        async def room() -> bool:
            return b" 200 " in await raw(address, b"GET /metrics HTTP/1.1\r\n\r\n")

        await eventually(room, "there is room again")


async def test_only_who_asks_for_a_name_of_the_port_reads_metrics(tmp_path: Path) -> None:
    settings = {"metrics_hosts": ("scraped.example",)}
    async with cluster(with_metrics(tmp_path, **settings)) as running:
        address = of(running)

        async def status(*hosts: str) -> bytes:
            fields = "".join(f"hOsT : {host}\r\n" for host in hosts)
            answer = await raw(address, f"GET /metrics HTTP/1.1\r\n{fields}\r\n".encode())
            return answer.split(b" ")[1]

        port = address.rpartition(":")[2]
        for host in (address, f"localhost:{port}", f"[::1]:{port}", "LOCALHOST", "scraped.example"):
            assert await status(host) == b"200", host
        for host in (
            *("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "[", "x@y@z"),
            *("evil.example#localhost", "localhost.", "10.0.0.1"),
        ):
            assert await status(host) == b"421", host
        assert await status("localhost", "evil.example") == b"421", "none of them may be another"


async def test_a_port_for_others_is_asked_for_by_its_address(tmp_path: Path) -> None:
    async with cluster(with_metrics(tmp_path, metrics_host="0.0.0.0")) as running:
        port = of(running).rpartition(":")[2]
        for host, status in ((f"127.0.0.2:{port}", b"200"), (f"127.0.0.3:{port}", b"421")):
            head = f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
            assert (await raw(f"127.0.0.2:{port}", head)).split(b" ")[1] == status, host


async def test_the_port_is_an_option_and_on_loopback_alone_unless_meant(tmp_path: Path) -> None:
    log = tmp_path / "log"
    store = ("--store", str(tmp_path / "store"), "--port", "0")
    quick = ("--set", "mappedFileSizeCommitLog=1048576", "--set", "maxIndexNum=1000")
    with party(log, "broker", *store, *quick, "--metrics-port", "0") as broker:
        (line,) = [line for line in log.read_text().splitlines() if "metrics on http://" in line]
        client = RawClient(broker.address)
        assert (await client.send()).code == 0
        await client.close()
        figures = await values(line.rpartition("http://")[2].removesuffix("/metrics"))
        assert figures["rocketmq_messages_in_total", "orders", ""] == 1
    wide = ("metricsExporterType=PROM", "metricsPromExporterHost=0.0.0.0")
    said = refusal("broker", *store, *(word for one in wide for word in ("--set", one)))
    assert "metricsPromExporterHost" in said
    assert "--allow-remote" in said


async def test_timers_are_shown_as_rocketmq_shows_them(tmp_path: Path) -> None:
    """Row E3."""
    async with cluster(with_metrics(tmp_path)) as running:
        client = running.client()
        for delay_s in (3600, 40, 40, 200, 90_000):
            await client.send(TIMER_DELAY_SEC=delay_s)
        await client.send(TIMER_DELAY_MS=100)

        async def is_delivered() -> bool:
            found = await values(of(running))
            return found.get(("rocketmq_timer_dequeue_total", "orders", "")) == 1

        await eventually(is_delivered, "the nearest is delivered")
        found = await values(of(running))
        assert found["rocketmq_timer_enqueue_total", "orders", ""] == 6
        for name, value in (
            ("enqueue_lag", 0),
            ("enqueue_latency_milliseconds", 0),
            ("dequeue_lag", 5),
            ("dequeue_latency_milliseconds", 0),
        ):
            assert found[f"rocketmq_timer_{name}", "", ""] == value, name
        due_within = {
            int(sample.labels["timer_bound_s"]): sample.value
            for family in text_string_to_metric_families(await scraped(of(running)))
            for sample in family.samples
            if sample.name == "rocketmq_timer_message_snapshot"
        }
        assert due_within == {
            5: 0,
            60: 2,
            300: 1,
            900: 0,
            3600: 1,
            14_400: 0,
            28_800: 0,
            86_400: 0,
        }
