"""`tidemark admin topic load | group load`: loads topics and groups from mqadmin's files.

The file is a JSON list, as `mqadmin updateTopicList` and `updateSubGroupList` read it:
`[{"topicName": "orders", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6}]` and
`[{"groupName": "billing", "retryMaxTimes": 16}]`. A broker takes all of it or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from engine.admin import Admin
from engine.admin.commands.session import DEFAULT_NAMESRV, NamesrvOption, ask
from engine.admin.commands.topics import BrokerOption, chosen_masters
from engine.foundation.errors import ConfigError, RemoteProtocolError, StorageError
from engine.foundation.terminal import say
from engine.protocol.bodies import TopicConfig
from engine.protocol.names import check_group, check_topic
from engine.runtime import SystemDisk

FileArgument = Annotated[str, typer.Argument(help="JSON list, as mqadmin's list commands read.")]
Entries = list[dict[str, Any]]


def load_topics(
    file: FileArgument, *, broker: BrokerOption = None, namesrv: NamesrvOption = DEFAULT_NAMESRV
) -> None:
    """Create or change the topics of a file."""

    async def put(admin: Admin, address: str, entries: Entries) -> None:
        try:
            configs = [TopicConfig.from_json(entry) for entry in entries]
        except RemoteProtocolError as error:
            raise ConfigError("file", file, f"topics as RocketMQ has them: {error}") from error
        await admin.topics.put(address, configs)

    _load(file, "topicName", check_topic, put, broker=broker, namesrv=namesrv)


def load_groups(
    file: FileArgument, *, broker: BrokerOption = None, namesrv: NamesrvOption = DEFAULT_NAMESRV
) -> None:
    """Create or change the groups of a file."""

    async def put(admin: Admin, address: str, entries: Entries) -> None:
        await admin.groups.put_all(address, entries)

    _load(file, "groupName", check_group, put, broker=broker, namesrv=namesrv)


def _load(
    file: str,
    name_key: str,
    check: Callable[[str], None],
    put: Callable[[Admin, str, Entries], Awaitable[None]],
    *,
    broker: str | None,
    namesrv: str,
) -> None:
    names: list[str] = []

    async def work(admin: Admin) -> list[str]:
        entries = _entries(file, name_key)
        names.extend(str(entry[name_key]) for entry in entries)
        for name in names:
            check(name)
        masters = await chosen_masters(admin, broker)
        for address in masters.values():
            await put(admin, address, entries)
        return list(masters)

    brokers = ask(namesrv, work)
    say(f"{', '.join(names)}: on {', '.join(brokers)}")


def _entries(file: str, name_key: str) -> Entries:
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
    return list(found)
