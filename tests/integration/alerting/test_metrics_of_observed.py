"""What an exporter, or a broker of RocketMQ 5, would export of a cluster that is observed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from pipelines.alerting.metrics.families import Process
from pipelines.alerting.metrics.observed import pairs_of
from pipelines.alerting.metrics.page import Page
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from tests.alert_stories import NOON_US, rows
from tests.integration.alerting.scraped_metrics import labels_of_all
from tests.integration.alerting.stores import sqlite_address
from tests.pipelines.emitted_in_steps import Story, stands

PAIR = frozenset({"cluster", "broker", "topic", "group"})
DIFF = frozenset({"group", "topic", "countOfOnlineConsumers", "msgModel"})
TOPIC = frozenset({"cluster", "broker", "topic"})
NODE = frozenset({"cluster", "node_type", "node_id", "topic", "consumer_group", "is_system"})
SPECIFIED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("group_diff", "group_retrydiff", "group_dlqdiff"), DIFF),
    **dict.fromkeys(
        (
            *("group_consume_tps", "consumer_tps", "consumer_offset", "send_back_nums"),
            *("group_consume_total_offset", "group_get_latency_by_storetime"),
            *("message_accumulation", "group_get_latency"),
        ),
        PAIR,
    ),
    **dict.fromkeys(("producer_tps", "producer_offset", "topic_retry_offset"), TOPIC),
    "topic_dlq_offset": frozenset({"cluster", "broker", "group"}),
    **dict.fromkeys(
        (
            *("consumer_lag_messages", "consumer_inflight_messages", "consumer_ready_messages"),
            "consumer_lag_latency_milliseconds",
        ),
        NODE | {"is_retry"},
    ),
    "send_to_dlq_messages_total": NODE,
}
"""As rocketmq-exporter and RocketMQ 5.1 name them, without rocketmq_."""


def test_names_and_labels_are_those_that_boards_ask_for() -> None:
    labels_by_metric = labels_of_all()
    found = {
        name.removeprefix("rocketmq_"): labels_by_metric[name]
        for name in labels_by_metric
        if "rocketmq_" in name
    }
    assert found == SPECIFIED


def test_a_lag_of_which_a_part_is_unknown_is_served_as_its_lower_bound_other_sums_not_at_all() -> (
    None
):
    queue = {"topic": "t", "lag_messages": 5, "time_lag_ms": 9, "committed": 1, "pulled": 2}
    lag = rows(
        "consumer_lag",
        *({**queue, "queue_id": number, "max_offset": 6} for number in (0, 1)),
        {**queue, "group": "half", "queue_id": 0, "max_offset": 6},
        {"group": "half", "topic": "t", "queue_id": 1, "max_offset": 6, "unknown_reason": "PURGED"},
        {"group": "all", "topic": "t", "queue_id": 1, "max_offset": 6,
         "unknown_reason": "BROADCAST"},
    )  # fmt: skip
    by_group = {row["group"]: row for row in pairs_of(lag, rows("group_state")).to_dicts()}
    assert set(by_group) == {"orders", "half"}
    assert (by_group["orders"]["lag_messages"], by_group["orders"]["time_lag_ms"]) == (10, 9)
    assert (by_group["half"]["lag_messages"], by_group["half"]["time_lag_ms"]) == (5, 9)
    assert by_group["half"]["committed"] is None
    assert by_group["orders"]["inflight_messages"] is None
    assert by_group["half"]["max_offset"] == 12


Samples = dict[str, list[tuple[dict[str, str], float]]]


def scraped(page: Page) -> Samples:
    samples: Samples = {}
    for family in text_string_to_metric_families(page.text()):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return samples


def test_an_observed_cluster_is_exported_and_a_minute_later_its_rates_are(tmp_path: Path) -> None:
    story = Story(tmp_path / "lake")
    ours, observer = story.broker("ours"), story.broker("theirs")
    observer.emitter = "cluster-1/theirs/observer"
    observer.report("lifecycle", kind="OBSERVED", observed_by="observer", report_each_ms=10_000)
    database = Database.at(sqlite_address(tmp_path))
    page = Page(
        Lake.at(str(story.lake)),
        database,
        process=lambda: Process(leads=True, rules=1),
        now_us=lambda: NOON_US,
    )
    samples: Samples = {}
    for until_s in (60, 150):
        for at_s in story.steps(until_s, ours, observer, step_s=10):
            stands(ours, "mine", 100 + at_s)
            stands(observer, "pay", 100 + 2 * at_s)
            for queue_id in (0, 1):
                observer.report(
                    "queue_watermarks", topic="t", queue_id=queue_id, min_offset=0,
                    max_offset=1_000 + 3 * at_s, readable=True,
                )  # fmt: skip
        story.judge()
        samples = scraped(page)
        if until_s == 60:
            assert "rocketmq_producer_tps" not in samples, "nobody knows yet"
    (pay,) = [pair for pair in samples["rocketmq_message_accumulation"] if "retry" not in pair[0]]
    assert pay[0]["group"] == "pay", "our broker reports itself"
    assert pay[0]["broker"] == "theirs"
    assert pay[1] > 300
    ends = {labels["topic"]: value for labels, value in samples["rocketmq_producer_offset"]}
    assert ends["t"] == 2 * (1_000 + 3 * 150)
    rates = {labels["topic"]: value for labels, value in samples["rocketmq_producer_tps"]}
    assert rates["t"] == 6
    consumed = {labels["group"]: value for labels, value in samples["rocketmq_consumer_tps"]}
    assert consumed["pay"] == 0, "it stands"
    assert "rocketmq_broker_tps" not in samples
    labels, value = samples["rocketmq_consumer_lag_messages"][0]
    assert (labels["node_id"], labels["consumer_group"], value) == ("theirs", "pay", pay[1])


def test_a_lake_without_observers_has_neither_family(tmp_path: Path) -> None:
    story = Story(tmp_path / "lake")
    ours = story.broker("ours")
    for at_s in story.steps(20, ours, step_s=10):
        stands(ours, "mine", 100 + at_s)
    story.judge()
    page = Page(
        Lake.at(str(story.lake)),
        Database.at(sqlite_address(tmp_path)),
        process=lambda: Process(leads=True, rules=1),
        now_us=lambda: NOON_US,
    )
    assert "rocketmq_" not in page.text()
