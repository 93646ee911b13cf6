"""Row C10: which layer decides a setting, and what is said of those that mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.broker.config import BrokerConfig
from engine.broker.rocketmq_settings import (
    WITHOUT_EFFECT,
    Start,
    read_start,
    rocketmq_values,
    with_rocketmq_settings,
)
from engine.foundation.config import REDACTED, redacted
from engine.foundation.config_layers import from_flags
from engine.foundation.errors import ConfigError, StorageError
from engine.runtime import SystemDisk
from engine.store import StoreConfig


def start(
    file: Path, text: str, *, environment: dict[str, str] | None = None, **flags: str
) -> Start:
    file.write_text(text)
    root = {"storePathRootDir": str(file.parent / "store")}
    return read_start(
        SystemDisk(), str(file), environment=environment or {}, flags=from_flags(root | flags)
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("fileReservedTime=long", "fileReservedTime='long' is not allowed: a number "),
        ("fileReservedTime=-1", "fileReservedTime='-1' is not allowed: a number from"),
        ("fileReservedTime=nan", "a number from"),
        ("syncFlushTimeout=0", "a number from 100 to 60000"),
        ("maxMessageSize=5000000", "a number from 1 to 4194304"),
        ("channelExpiredTimeout=0", "a number from 1000 to 86400000"),
        ("cleanResourceInterval=soon", "a whole number"),
        ("brokerRole=LEADER", "one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("brokerId=1", "0 for ASYNC_MASTER"),
        (
            "enableSlaveActingMaster=true",
            "false alone: a slave becomes master when somebody decides so, or in a group",
        ),
        ("brokerPermission=7", "4 \\(read\\), 2 \\(write\\) or 6 \\(both\\)"),
        ("flushDiskType=SOMETIMES", "'SOMETIMES' is not allowed: one of SYNC_FLUSH, ASYNC_FLUSH"),
        ("deleteWhen=25", "hours of the day, 0 to 23"),
        ("metricsExporterType=OTLP_GRPC", "'OTLP_GRPC'"),
    ],
)
def test_a_wrong_value_is_refused_with_its_line_and_what_would_be_right(
    tmp_path: Path, line: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=f"{complaint}.*broker.conf, line 3"):
        start(tmp_path / "broker.conf", f"# ours\n\n{line}\n")


def test_a_flag_nobody_knows_is_refused_and_a_missing_file_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no key of this party; the nearest is deleteWhen"):
        start(tmp_path / "broker.conf", "", deletewhen="04")
    with pytest.raises(ConfigError, match="a folder for the store"):
        read_start(SystemDisk(), None, environment={}, flags=[])
    with pytest.raises(StorageError, match=r"absent\.conf"):
        read_start(SystemDisk(), str(tmp_path / "absent.conf"), environment={}, flags=[])


def test_the_highest_layer_decides_and_what_it_fixes_is_remembered(tmp_path: Path) -> None:
    found = start(
        tmp_path / "broker.conf",
        "fileReservedTime=1\nfileReservedTime=2\nbrokerName=file\ndeleteWhen=01\n",
        environment={"TIDEMARK_BROKER_DELETE_WHEN": "02", "TIDEMARK_BROKER_BROKERNAME": "env"},
        brokerName="flag",
    )
    values = rocketmq_values(found.config)
    assert (values["fileReservedTime"], values["deleteWhen"]) == ("2", "02")
    assert values["brokerName"] == "flag"
    assert sorted(found.origin.pinned) == ["brokerName", "deleteWhen", "storePathRootDir"]
    assert found.origin.pinned["deleteWhen"] == "environment variable TIDEMARK_BROKER_DELETE_WHEN"


def test_what_means_nothing_here_is_logged_once_each_with_the_nearest_key(tmp_path: Path) -> None:
    found = start(
        tmp_path / "broker.conf",
        "flushDiskTyp=SYNC_FLUSH\nflushDiskTyp=SYNC_FLUSH\nzzz=1\naccessMessageInMemoryMaxRatio=40",
    )
    said = [warning.partition("broker.conf, ")[2] for warning in found.warnings]
    assert said == [
        "line 2: flushDiskTyp is ignored: no key of this party; the nearest is flushDiskType",
        "line 3: zzz is ignored: no key of this party; none is like it",
        "line 4: accessMessageInMemoryMaxRatio is ignored: "
        + WITHOUT_EFFECT["accessMessageInMemoryMaxRatio"],
    ]


@pytest.mark.parametrize(("more", "copies"), [({}, 2), ({"inSyncReplicas": "1"}, 1)])
def test_a_sync_master_waits_for_a_slave_unless_its_settings_say_otherwise(
    more: dict[str, str], copies: int
) -> None:
    base = BrokerConfig(store=StoreConfig(root="s"))
    made = with_rocketmq_settings(base, {"brokerRole": "SYNC_MASTER"} | more)
    assert made.in_sync_replicas == copies
    assert with_rocketmq_settings(base, rocketmq_values(made)) == made


def test_every_value_shown_reads_back_as_the_same_configuration(tmp_path: Path) -> None:
    config = start(
        tmp_path / "broker.conf",
        "messageDelayLevel=1s 90s 2h\nfileReservedTime=36\ndeleteWhen=03;04\n"
        "diskMaxUsedSpaceRatio=60\nnamesrvAddr=a:1;b:2\nmetricsExporterType=PROM\n",
    ).config
    assert with_rocketmq_settings(config, rocketmq_values(config)) == config
    assert rocketmq_values(config)["messageDelayLevel"] == "1s 90s 2h"


def test_secrets_are_not_shown() -> None:
    shown = redacted(
        {"tls.server.keyPassword": "x", "aclSecretKey": "y", "brokerName": "b", "e": ""}
    )
    assert shown == {
        "tls.server.keyPassword": REDACTED,
        "aclSecretKey": REDACTED,
        "brokerName": "b",
        "e": "",
    }


@pytest.mark.parametrize(
    "name", ["sample_interval_ms", "full_sample_interval_ms", "window_sample_interval_ms"]
)
def test_an_interval_of_reports_that_never_ends_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="at least 1 ms"):
        BrokerConfig(store=StoreConfig(root="/store"), **{name: 0})  # type: ignore[arg-type]
