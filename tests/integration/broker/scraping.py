"""A broker's metrics as a Prometheus reads them."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from engine.broker.config import MetricsExporter
from tests.integration.broker.cluster import Cluster, broker_config

Scrape = dict[tuple[str, str, str], float]
"""(name, topic, group) → value; empty text for a label that the series has not."""


def with_metrics(folder: Path, **settings: Any) -> Any:
    return broker_config(folder, metrics_exporter=MetricsExporter.PROM, metrics_port=0, **settings)


async def scraped(address: str) -> str:
    """The text of one scrape."""

    def get() -> tuple[str, str]:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            return answer.read().decode(), answer.headers["Content-Type"]

    body, content_type = await asyncio.to_thread(get)
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    return body


async def values(address: str) -> Scrape:
    """Every sample by name, topic and group; message types are summed."""
    found: Scrape = {}
    for family in text_string_to_metric_families(await scraped(address)):
        for sample in family.samples:
            if sample.name.endswith("_bucket") or "node_id" not in sample.labels:
                continue
            assert sample.labels["cluster"] == "DefaultCluster"
            assert (sample.labels["node_type"], sample.labels["node_id"]) == ("broker", "broker-a")
            labels = sample.labels
            key = (sample.name, labels.get("topic", ""), labels.get("consumer_group", ""))
            found[key] = found.get(key, 0) + sample.value
    return found


def of(running: Cluster) -> str:
    address = running.broker.metrics_address
    assert address is not None
    return address
