"""`tidemark admin topic units | allocate | order`: single queues of a topic.

What a consume queue says of its messages, who would read which queues, and the order setting that
name servers keep of the topic.
"""

from __future__ import annotations

from typing import Annotated

import typer

from engine.admin import Admin
from engine.admin.api.topic_scaling import config_of
from engine.admin.commands.output import Row, shown
from engine.admin.commands.session import DEFAULT_NAMESRV, JsonOption, NamesrvOption, ask, queues_of
from engine.admin.commands.topics import TopicArgument, chosen_masters
from engine.client.consuming.allocation import Averagely
from engine.foundation.errors import ConfigError
from engine.foundation.terminal import say
from engine.protocol.bodies_admin import ConsumeQueueUnits
from engine.protocol.message import MessageQueue

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""Where name servers keep `broker:queues;...` of a topic."""

BrokerArgument = Annotated[str, typer.Argument(help="Name of the broker.")]
QueueArgument = Annotated[int, typer.Argument(min=0, help="Number of the queue.")]


def units(
    topic: TopicArgument,
    broker: BrokerArgument,
    queue: QueueArgument,
    *,
    begin: Annotated[int, typer.Option("--from", min=0, help="First queue offset.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="At most so many.")] = 32,
    group: Annotated[
        str | None, typer.Option(help="Say what this group subscribes to, as well.")
    ] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """What a queue's index says of its messages: where they are in the log, how long, which tag."""

    async def work(admin: Admin) -> ConsumeQueueUnits:
        place = await queue_of(admin, topic, broker, queue_id=queue)
        if await admin.offsets.max_offset(place) == 0:
            return ConsumeQueueUnits(0, 0, [])  # Nobody ever wrote to it.
        found = await admin.topics.queue_units(place, begin, count=count, group=group)
        if begin >= found.min_queue_index:
            return found
        return await admin.topics.queue_units(
            place, found.min_queue_index, count=count, group=group
        )

    found = ask(namesrv, work)
    first = max(begin, found.min_queue_index)
    rows = [
        {
            "offset": first + number,
            "physical_offset": unit.physic_offset,
            "size": unit.physic_size,
            "tag_code": unit.tags_code,
        }
        for number, unit in enumerate(found.queue_data)
    ]
    ends = f"offsets {found.min_queue_index} to {found.max_queue_index}"
    say(shown(rows, as_json=as_json, empty=f"nothing from {begin} on: {ends}"))
    if group is not None:
        data = found.subscription_data
        wanted = found.filter_data if data is None else f"{group} subscribes to {data.sub_string}"
        say(f"\n{wanted}", err=as_json)


def allocate(
    topic: TopicArgument,
    clients: Annotated[list[str], typer.Argument(help="Ids of the clients, or any names.")],
    *,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """Which queues each of these clients would hold, were they the members of a group (AVG)."""

    async def work(admin: Admin) -> list[Row]:
        members = sorted(set(clients))
        if len(members) < len(clients) or not all(name.strip() for name in members):
            raise ConfigError("clients", " ".join(clients), "names that differ, none of them blank")
        queues = await queues_of(admin, topic)
        return [
            {"client": name, "broker": held.broker_name, "queue": held.queue_id}
            for name in members
            for held in Averagely().allocate(name, queues, members) or [_NONE]
        ]

    rows = [
        row if row["broker"] else {**row, "broker": None, "queue": None}
        for row in ask(namesrv, work)
    ]
    say(shown(rows, as_json=as_json))


_NONE = MessageQueue("", "", -1)


def order(
    topic: TopicArgument,
    *,
    put: Annotated[
        str | None, typer.Option("--set", help="broker:queues, several split by ';'.")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Let name servers forget it.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """The order setting of a topic, which routes carry where orderMessageEnable is true."""

    async def work(admin: Admin) -> str | None:
        if put is not None and delete:
            raise ConfigError("--set", put, "not together with --delete")
        if put is not None:
            _check_order(put)
            await admin.name_servers.put_key_value(ORDER_NAMESPACE, topic, put)
        elif delete:
            await admin.name_servers.delete_key_value(ORDER_NAMESPACE, topic)
        return await admin.name_servers.key_value(ORDER_NAMESPACE, topic)

    setting = ask(namesrv, work)
    rows = [] if setting is None else [{"topic": topic, "order": setting}]
    say(shown(rows, as_json=as_json, empty=f"topic {topic} has no order setting"))


async def queue_of(admin: Admin, topic: str, broker: str, *, queue_id: int) -> MessageQueue:
    """A queue that there is. Raises ConfigError, or RequestRefused when the topic is not there."""
    await chosen_masters(admin, broker)
    config = await config_of(admin, topic, broker)
    last = max(config.read_queue_nums, config.write_queue_nums) - 1
    if not 0 <= queue_id <= last:
        raise ConfigError("queue", queue_id, f"0 to {last}, the queues of {topic} on {broker}")
    return MessageQueue(topic, broker, queue_id)


def _check_order(text: str) -> None:
    for part in text.split(";"):
        name, _, number = part.rpartition(":")
        if not (name.strip() and number.isdecimal() and int(number)):
            raise ConfigError("--set", text, "broker:queues such as broker-a:4;broker-b:4")
