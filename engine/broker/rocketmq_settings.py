"""Converts RocketMQ settings to and from the broker configuration, and checks their ranges.

Place in the walk: once at start, when files, environment and flags become a `BrokerConfig`; again
when a tool reads the configuration or changes one key of it.

Invariant: `with_rocketmq_settings` reads back what `rocketmq_values` returns. LIVE is the
allow-list: whatever is not in it stays until a restart, and no running broker takes what a restart
would refuse. A key whose behaviour this broker has in one form only is refused with any other
value: a broker that ignored `brokerRole=SLAVE` would be a second master. Absent on purpose: options
(commands), how values fit together (config).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.broker.config import BrokerConfig, BrokerRole
from engine.foundation.config import (
    ANY_WORD,
    LiveKey,
    keys_of,
    read_spans_ms,
    read_whole,
    values_of,
    with_settings,
    write_spans,
)
from engine.foundation.config_layers import (
    PartyStart,
    Setting,
    applied,
    from_environment,
    layered,
    start_with,
)
from engine.foundation.errors import ConfigError
from engine.foundation.limits import BODY_BYTES_MAX, PULL_MESSAGES_MAX, QUEUES_PER_TOPIC_MAX
from engine.foundation.units import DAY_MS, HOUR_MS, KIB, MIB, MINUTE_MS, SECOND_MS
from engine.runtime import Disk
from engine.store.config import StoreConfig
from engine.store.stored_settings import read_kept

HOURS_MAX = 10 * 365 * 24
LIVE = {
    "autoCreateTopicEnable": ANY_WORD,
    "autoCreateSubscriptionGroup": ANY_WORD,
    "brokerPermission": LiveKey(2, 6),
    "defaultTopicQueueNums": LiveKey(1, QUEUES_PER_TOPIC_MAX),
    "defaultQueryMaxNum": LiveKey(1, PULL_MESSAGES_MAX),
    "maxMsgsNumBatch": LiveKey(1, PULL_MESSAGES_MAX),
    "longPollingEnable": ANY_WORD,
    "shortPollingTimeMills": LiveKey(1, MINUTE_MS),
    "flushConsumerOffsetInterval": LiveKey(100, DAY_MS),
    "maxMessageSize": LiveKey(1, BODY_BYTES_MAX),
    "fileReservedTime": LiveKey(1, HOURS_MAX),
    "deleteWhen": ANY_WORD,
    "deleteFileBatchMax": LiveKey(1, 1000),
    "cleanResourceInterval": LiveKey(100, DAY_MS),
    "diskMaxUsedSpaceRatio": LiveKey(10, 95),
    "diskSpaceCleanForciblyRatio": LiveKey(10, 98),
    "diskSpaceWarningLevelRatio": LiveKey(10, 99),
    "flushIntervalCommitLog": LiveKey(1, MINUTE_MS),
    "flushCommitLogLeastPages": LiveKey(0, 4096),
    "flushCommitLogThoroughInterval": LiveKey(1, 10 * MINUTE_MS),
    "flushIntervalConsumeQueue": LiveKey(1, MINUTE_MS),
    "flushConsumeQueueLeastPages": LiveKey(0, 4096),
    "flushConsumeQueueThoroughInterval": LiveKey(1, 10 * MINUTE_MS),
    "syncFlushTimeout": LiveKey(100, 60 * SECOND_MS),
    "maxTransferBytesOnMessageInMemory": LiveKey(1, 4 * MIB),
    "maxTransferCountOnMessageInMemory": LiveKey(1, PULL_MESSAGES_MAX),
    "maxTransferBytesOnMessageInDisk": LiveKey(1, 4 * MIB),
    "maxTransferCountOnMessageInDisk": LiveKey(1, PULL_MESSAGES_MAX),
    "maxFilterMessageSize": LiveKey(20, 4 * MIB),
    "useServerSideResetOffset": ANY_WORD,
    "rejectTransactionMessage": ANY_WORD,
    "timerStopDequeue": ANY_WORD,
    "transactionTimeOut": LiveKey(1, DAY_MS),
    "transactionCheckMax": LiveKey(1, 1000),
    "transactionCheckInterval": LiveKey(1, DAY_MS),
}
"""In RocketMQ's units."""

_JUDGED_BY_CONFIG = (
    *("brokerPermission", "diskMaxUsedSpaceRatio"),
    *("diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio"),
)
AT_START: dict[str, tuple[float, float]] = {
    **{
        key: (live.least, live.most)
        for key, live in LIVE.items()
        if live.least is not None and live.most is not None and key not in _JUDGED_BY_CONFIG
    },
    "fileReservedTime": (SECOND_MS / HOUR_MS, HOURS_MAX),
    "channelExpiredTimeout": (SECOND_MS, DAY_MS),
    "commitCommitLogLeastPages": (0, 4096),
    "commitCommitLogThoroughInterval": (1, 10 * MINUTE_MS),
    "flushConsumeQueuesAtOnce": (0, 1_000_000),
    "deleteCommitLogFilesInterval": (0, MINUTE_MS),
}
"""Ranges of numbers, also of those that stay until a restart."""


def check_range(key: str, text: str) -> None:
    """Raise ConfigError for a number that is out of its range; words are judged by their reader."""
    least, most = AT_START.get(key, (None, None))
    try:
        number = float(text)
    except ValueError:
        return
    if least is not None and most is not None and not least <= number <= most:
        raise ConfigError(key, text, f"a number from {least:g} to {most:.15g}")


PAGE_BYTES = 4 * KIB
ROOT = "storePathRootDir"
FILE_NAME = "broker.properties"
ENVIRONMENT_PREFIX = "TIDEMARK_BROKER_"

WITHOUT_EFFECT = {
    "accessMessageInMemoryMaxRatio": "a share of the RAM in RocketMQ, a fixed size here",
}
"""Keys of RocketMQ that a configuration may well hold and that mean nothing here, with the reason.
"""

_NO_GROUPS = "a slave becomes master when somebody decides so, or in a group of its own"
ACCESS_KEYS = ("aclEnable", "authenticationEnabled", "authorizationEnabled")
"""A file that asks for accounts is refused: else the broker would start open to everybody."""

FIXED = {
    "enableControllerMode": ("false", "there is no controller to elect masters"),
    "enableSlaveActingMaster": ("false", _NO_GROUPS),
    "duplicationEnable": ("false", _NO_GROUPS),
    "totalReplicas": ("1", _NO_GROUPS),
    **dict.fromkeys(ACCESS_KEYS, ("false", "accounts are given by --access FILE")),
}
"""Keys with one possible value, and why."""


def _percent(text: str) -> float:
    """RocketMQ counts in whole percent; a share below 1 is taken as such."""
    value = _number(text)
    return value / 100 if value > 1 else value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError("a number") from error


def _pages(text: str) -> int:
    return read_whole(text) * PAGE_BYTES


def _write_pages(size_bytes: object) -> str:
    assert isinstance(size_bytes, int)
    return str(size_bytes // PAGE_BYTES)


def _write_percent(share: object) -> str:
    assert isinstance(share, float)
    return f"{share * 100:g}"


def _addresses(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


_READERS = {
    "messageDelayLevel": read_spans_ms,
    "fileReservedTime": lambda text: round(_number(text) * HOUR_MS),
    "flushCommitLogLeastPages": _pages,
    "commitCommitLogLeastPages": _pages,
    "flushConsumeQueueLeastPages": _pages,
    "diskMaxUsedSpaceRatio": _percent,
    "diskSpaceCleanForciblyRatio": _percent,
    "diskSpaceWarningLevelRatio": _percent,
    "namesrvAddr": _addresses,
    "dLegerPeers": _addresses,
    "metricsPromExporterAllowedHosts": _addresses,
}
"""Keys whose words are in another unit or form than our field: spans, hours, pages, percent."""

_WRITERS = {
    "messageDelayLevel": write_spans,
    "fileReservedTime": lambda span_ms: f"{span_ms / HOUR_MS:g}",
    "flushCommitLogLeastPages": _write_pages,
    "commitCommitLogLeastPages": _write_pages,
    "flushConsumeQueueLeastPages": _write_pages,
    "diskMaxUsedSpaceRatio": _write_percent,
    "diskSpaceCleanForciblyRatio": _write_percent,
    "diskSpaceWarningLevelRatio": _write_percent,
    "deleteWhen": lambda hours: ";".join(f"{hour:02}" for hour in hours),
}


def known_keys() -> list[str]:
    """Every key a broker understands, sorted."""
    own = [*keys_of(BrokerConfig), *keys_of(StoreConfig), *FIXED]
    return sorted(dict.fromkeys(key for key in own if key not in WITHOUT_EFFECT))


def with_rocketmq_settings(config: BrokerConfig, settings: Mapping[str, str]) -> BrokerConfig:
    """Apply `key=value` settings by RocketMQ's keys to the broker and its store.

    Raises ConfigError for a key nobody knows, and for values that cannot work.
    """
    known = known_keys()
    for key, value in settings.items():
        if key not in known:
            raise ConfigError(key, value, WITHOUT_EFFECT.get(key) or f"one of {', '.join(known)}")
        if key in FIXED and value.strip().casefold() != FIXED[key][0].casefold():
            only, why = FIXED[key]
            raise ConfigError(key, value, f"{only} alone: {why}")
        check_range(key, value)
    if settings.get("brokerRole", "").strip() == BrokerRole.SYNC_MASTER.value:
        # Where nobody says for how many: RocketMQ's default of 1 would wait for no slave.
        settings = {"inSyncReplicas": "2", **settings}
    store = with_settings(config.store, settings, readers=_READERS)
    return with_settings(replace(config, store=store), settings, readers=_READERS)


def broker_config_of(settings: Mapping[str, Setting]) -> BrokerConfig:
    """The configuration that these settings make over the defaults. Raises ConfigError."""
    if ROOT not in settings:
        raise ConfigError(ROOT, None, "a folder for the store: --store, or this key in the file")
    base = BrokerConfig(store=StoreConfig(root=settings[ROOT].value))
    return applied(settings, lambda values: with_rocketmq_settings(base, values))


def rocketmq_values(config: BrokerConfig) -> dict[str, str]:
    """Every key with the value in force, in RocketMQ's words, sorted by key."""
    found = {key: only for key, (only, _) in FIXED.items()}
    found |= dict.fromkeys(ACCESS_KEYS, "true" if config.access.accounts else "false")
    found |= values_of(config, _WRITERS) | values_of(config.store, _WRITERS)
    if not config.raft_enable:
        found = {key: found[key] for key in found if key not in _OF_A_GROUP}
    return {key: found[key] for key in sorted(found) if key not in WITHOUT_EFFECT}


_OF_A_GROUP = ("dLegerGroup", "dLegerPeers", "dLegerSelfId")
"""Keys that RocketMQ shows only where somebody has set them."""


Start = PartyStart[BrokerConfig]
"""What a broker starts with."""


def read_start(
    disk: Disk,
    path: str | None,
    *,
    environment: Mapping[str, str],
    flags: Sequence[Setting],
) -> Start:
    """The configuration by file, environment and flags.

    Without a path the file is the one in the store's own folder, if it is there: changes made while
    running are kept in it. Raises ConfigError, StorageError for a file that cannot be read, and
    CorruptRecord for damaged settings of the store.
    """
    known = known_keys()
    above = [*flags, *from_environment(environment, ENVIRONMENT_PREFIX, known)]

    def start_by(data: bytes) -> Start:
        return start_with(
            data, path, above, known=known, without_effect=WITHOUT_EFFECT, make=broker_config_of
        )

    root = layered(above).get(ROOT)
    if path is not None:
        return start_by(disk.read(path))
    if root is None:
        return start_by(b"")
    path = f"{root.value}/config/{FILE_NAME}"
    start, found = read_kept(disk, path, known=(*known, *WITHOUT_EFFECT), make=start_by)
    return replace(start, origin=replace(start.origin, is_kept=True, found=found))
