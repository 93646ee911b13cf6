"""Settings of the consumers that ask for messages themselves.

Invariant and defaults as in `config`; RocketMQ's names stand in the metadata.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.client.config import ConsumerConfig
from engine.foundation.errors import ConfigError
from engine.foundation.units import SECOND_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullConfig(ConsumerConfig):
    """How a lite pull consumer pulls ahead of its polls, and reports.

    Of a push consumer's settings those about listeners and their retries mean nothing here.
    """

    pull_batch_max: int = field(default=10, metadata={"rocketmq": "pullBatchSize"})
    """Messages asked for in one pull, and so answered by one poll."""

    pull_suspend_ms: int = field(
        default=20 * SECOND_MS, metadata={"rocketmq": "brokerSuspendMaxTimeMillis"}
    )
    """Milliseconds the broker may hold a pull while there is nothing to answer."""

    commit_acknowledged: bool = True
    """Wait for the broker's answer to each reported offset."""

    auto_commit: bool = field(default=True, metadata={"rocketmq": "autoCommit"})
    """Note what earlier polls answered as consumed, now and then, when polled again."""

    auto_commit_ms: int = field(
        default=5 * SECOND_MS, metadata={"rocketmq": "autoCommitIntervalMillis"}
    )
    """Milliseconds between those notes, at least 1000."""

    poll_timeout_ms: int = field(default=5 * SECOND_MS, metadata={"rocketmq": "pollTimeoutMillis"})
    """Milliseconds a poll waits for messages unless it says otherwise."""

    held_messages_max: int = field(default=10_000, metadata={"rocketmq": "pullThresholdForAll"})
    """Pulling pauses while more messages of all queues wait for a poll."""

    def __post_init__(self) -> None:
        ConsumerConfig.__post_init__(self)
        if self.orderly:
            raise ConfigError("orderly", True, "False: who polls decides on the order")
        if self.auto_commit_ms < SECOND_MS:
            raise ConfigError("auto_commit_ms", self.auto_commit_ms, f"at least {SECOND_MS}")
        for key in ("poll_timeout_ms", "held_messages_max"):
            if getattr(self, key) <= 0:
                raise ConfigError(key, getattr(self, key), "more than 0")
