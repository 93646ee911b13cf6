"""`tidemark admin cluster export`: writes a whole cluster as one JSON document.

The document is for keeping or for comparing.

By broker: `metadata` has the topics and groups that users made, in the words of `topic load` and
`group load`; `configs` what each broker is set to; `metrics` what it says of its run.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from engine.admin import Admin
from engine.admin.commands.output import json_text
from engine.admin.commands.session import DEFAULT_NAMESRV, NamesrvOption, ask
from engine.admin.commands.topics import chosen_masters
from engine.foundation.errors import ConfigError, StorageError
from engine.foundation.terminal import say
from engine.protocol.names import is_dlq_topic, is_retry_topic, is_system_topic
from engine.runtime import SystemDisk


class Exported(StrEnum):
    """What there is to export."""

    METADATA = "metadata"
    CONFIGS = "configs"
    METRICS = "metrics"


def export(
    what: Annotated[Exported, typer.Argument(help="What of the cluster.")],
    *,
    to: Annotated[str | None, typer.Option(help="File; standard output when left out.")] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
) -> None:
    """The cluster's topics and groups, its settings, or its figures, broker by broker, as JSON."""

    async def work(admin: Admin) -> str:
        text = json_text(await _document(admin, what))
        if to is not None:
            try:
                SystemDisk().write(to, f"{text}\n".encode())
            except StorageError as error:
                raise ConfigError("--to", to, f"a file that can be written: {error}") from error
        return text

    text = ask(namesrv, work)
    say(text if to is None else f"{what.value} of the cluster: {to}")


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
