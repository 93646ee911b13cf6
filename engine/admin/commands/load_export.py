"""Bulk JSON transfer: `tidemark admin topic load`, `group load` and `cluster export`.

`load` reads a list as `mqadmin updateTopicList` and `updateSubGroupList` do; a broker takes all of
it or nothing: `[{"topicName": "orders", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6}]`,
`[{"groupName": "billing", "retryMaxTimes": 16}]`. `export` writes by broker: `metadata`, the topics
and groups that users made, in the same words; `configs`; `metrics`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from engine.admin import Admin
from engine.admin.commands.output import json_text
from engine.admin.commands.topics import BrokerOption, chosen_masters
from engine.foundation.errors import ConfigError, RemoteProtocolError, StorageError
from engine.protocol.bodies import TopicConfig
from engine.protocol.names import (
    check_group,
    check_topic,
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
)
from engine.runtime import SystemDisk

FileArgument = Annotated[str, typer.Argument(help="JSON list, as mqadmin's list commands read.")]
Entries = list[dict[str, Any]]


async def load_topics(admin: Admin, file: FileArgument, *, broker: BrokerOption = None) -> str:
    """Create or change the topics of a file."""

    async def put(address: str, entries: Entries) -> None:
        try:
            configs = [TopicConfig.from_json(entry) for entry in entries]
        except RemoteProtocolError as error:
            raise ConfigError("file", file, f"topics as RocketMQ has them: {error}") from error
        await admin.topics.put(address, configs)

    entries = _entries(file, "topicName", check_topic)
    return await _load(entries, "topicName", put, await chosen_masters(admin, broker))


async def load_groups(admin: Admin, file: FileArgument, *, broker: BrokerOption = None) -> str:
    """Create or change the groups of a file."""
    entries, put = _entries(file, "groupName", check_group), admin.groups.put_all
    return await _load(entries, "groupName", put, await chosen_masters(admin, broker))


async def _load(
    entries: Entries,
    name_key: str,
    put: Callable[[str, Entries], Awaitable[None]],
    masters: Mapping[str, str],
) -> str:
    for address in masters.values():
        await put(address, entries)
    return f"{', '.join(entry[name_key] for entry in entries)}: on {', '.join(masters)}"


def _entries(file: str, name_key: str, check: Callable[[str], None]) -> Entries:
    rule = f"a JSON list of objects, each with {name_key}"
    try:
        found = json.loads(SystemDisk().read(file))
    except (StorageError, ValueError, RecursionError) as error:
        raise ConfigError("file", file, f"{rule}: {error}") from error
    named = isinstance(found, list) and all(
        isinstance(entry, dict) and isinstance(entry.get(name_key), str) for entry in found
    )
    if not found or not named:
        raise ConfigError("file", file, rule)
    for entry in found:
        check(entry[name_key])
    return list(found)


class Exported(StrEnum):
    """What there is to export."""

    METADATA = "metadata"
    CONFIGS = "configs"
    METRICS = "metrics"


async def export(
    admin: Admin,
    what: Annotated[Exported, typer.Argument(help="What of the cluster.")],
    *,
    to: Annotated[str | None, typer.Option(help="File; standard output when left out.")] = None,
) -> str:
    """The cluster's topics and groups, its settings, or its figures, broker by broker, as JSON."""
    text = json_text(await _document(admin, what))
    if to is None:
        return text
    try:
        SystemDisk().write(to, f"{text}\n".encode())
    except StorageError as error:
        raise ConfigError("--to", to, f"a file that can be written: {error}") from error
    return f"{what.value} of the cluster: {to}"


async def _document(admin: Admin, what: Exported) -> dict[str, Any]:
    masters = await chosen_masters(admin, None)
    if what is Exported.CONFIGS:
        return {name: await admin.cluster.config(address) for name, address in masters.items()}
    if what is Exported.METRICS:
        return {name: await admin.cluster.figures(address) for name, address in masters.items()}
    topics: dict[str, list[Any]] = {name: [] for name in masters}
    own = {
        topic for address in masters.values() for topic in await admin.topics.system_names(address)
    }
    for topic in await admin.topics.names():
        if topic in own or is_system_topic(topic) or is_retry_topic(topic) or is_dlq_topic(topic):
            continue
        for name, config in (await admin.topics.configs(topic)).items():
            topics.setdefault(name, []).append(config.to_json())
    return {
        name: {
            "topics": topics[name],
            "groups": list((await admin.groups.configs_at(address)).values()),
        }
        for name, address in masters.items()
    }
