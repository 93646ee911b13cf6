"""Settings that contradict each other or RocketMQ are refused when they are made, by name."""

from __future__ import annotations

from typing import Any

import pytest

from engine.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from engine.foundation.errors import ConfigError

NAMESRV = ("127.0.0.1:9876",)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"namesrv_addresses": ()}, "namesrv_addresses"),
        ({"namesrv_addresses": ("127.0.0.1",)}, "namesrv_addresses"),
        ({"namesrv_addresses": ("host:port",)}, "namesrv_addresses"),
        ({"heartbeat_ms": 60_000}, "heartbeat_ms"),
        ({"route_poll_ms": 0}, "route_poll_ms"),
        ({"client_ip": "localhost"}, "client_ip"),
    ],
)
def test_a_client_setting_is_refused_by_name(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ClientConfig(**({"namesrv_addresses": NAMESRV} | settings))
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"retry_times": -1}, "retry_times"),
        ({"compress_level": 0}, "compress_level"),
        ({"body_bytes_max": 5 << 20}, "body_bytes_max"),
        ({"send_timeout_ms": 0}, "send_timeout_ms"),
    ],
)
def test_a_producer_setting_is_refused_by_name(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ProducerConfig(**settings)
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"consume_concurrency": 0}, "consume_concurrency"),
        ({"consume_batch_max": 1025}, "consume_batch_max"),
        ({"pull_batch_max": 1025}, "pull_batch_max"),
        ({"pull_suspend_ms": 30_000}, "pull_timeout_ms"),
        ({"pull_suspend_ms": 301_000, "pull_timeout_ms": 400_000}, "pull_suspend_ms"),
        ({"lock_ms": 30_001}, "lock_ms"),
        ({"suspend_queue_ms": 5}, "suspend_queue_ms"),
        ({"max_reconsume_times": -1}, "max_reconsume_times"),
    ],
)
def test_a_consumer_setting_is_refused_by_name(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ConsumerConfig(**settings)
    assert refused.value.key == key


def test_offsets_are_not_persisted_later_at_first_than_afterwards() -> None:
    consumer = ConsumerConfig()
    assert consumer.persist_first_ms <= consumer.persist_ms, "RocketMQ waits 10 s at first"


def test_defaults_are_rocketmqs() -> None:
    consumer, producer = ConsumerConfig(), ProducerConfig()
    assert (consumer.consume_concurrency, consumer.consume_batch_max) == (20, 1)
    assert (consumer.pull_batch_max, consumer.queue_messages_max) == (32, 1000)
    assert (consumer.queue_bytes_max, consumer.queue_span_max) == (100 << 20, 2000)
    assert consumer.persist_ms == 5_000
    assert (consumer.rebalance_ms, consumer.lock_ms) == (20_000, 20_000)
    assert (consumer.pull_suspend_ms, consumer.consume_timeout_ms) == (15_000, 900_000)
    assert (producer.retry_times, producer.send_timeout_ms) == (2, 3000)
    assert producer.compress_over_bytes == 4096
