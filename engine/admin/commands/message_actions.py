"""`tidemark admin message by-offset | send | consume`: reads, sends or hands over a message.

It reads one queue's messages, sends one to see whether that works, or gives a stored one to a
consumer.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import Annotated

import typer

from engine.admin import Admin
from engine.admin.commands.groups import GroupArgument
from engine.admin.commands.messages import line_of, read_offset_id
from engine.admin.commands.name_servers import read_settings
from engine.admin.commands.output import Row, shown, shown_record
from engine.admin.commands.session import DEFAULT_NAMESRV, JsonOption, NamesrvOption, ask, sentence
from engine.admin.commands.topic_queues import BrokerArgument, QueueArgument, queue_of
from engine.admin.commands.topics import BrokerOption, TopicArgument, chosen_masters
from engine.foundation.errors import ConfigError, TidemarkError
from engine.foundation.terminal import say
from engine.protocol.message import Message, MessageExt, MessageQueue

PULL_COUNT = 32


def by_offset(
    topic: TopicArgument,
    broker: BrokerArgument,
    queue: QueueArgument,
    offset: Annotated[int, typer.Argument(min=0, help="Queue offset of the first one.")],
    *,
    count: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """Messages of one queue from an offset on."""

    async def work(admin: Admin) -> list[MessageExt]:
        place = await queue_of(admin, topic, broker, queue_id=queue)
        first, end = await admin.offsets.min_offset(place), await admin.offsets.max_offset(place)
        if not first <= offset < end:
            kept = f"{first} to {end - 1}" if first < end else "none, the queue is empty"
            raise ConfigError("offset", offset, f"a kept one of queue {queue} on {broker}: {kept}")
        found: list[MessageExt] = []
        while len(found) < count:
            start = found[-1].queue_offset + 1 if found else offset
            some = await admin.messages.read(
                place, start, count_max=min(PULL_COUNT, count - len(found))
            )
            if not some:
                break
            found += some
        return found

    rows = [line_of(message) for message in ask(namesrv, work)]
    say(shown(rows, as_json=as_json, empty="no messages"))


def send(
    topic: TopicArgument,
    body: Annotated[str | None, typer.Argument(help="Text of the message.")] = None,
    *,
    size: Annotated[
        int | None, typer.Option(min=1, help="In place of a text: so many bytes.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Its tag.")] = None,
    key: Annotated[str | None, typer.Option(help="Its business keys, split by blanks.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", help="name=value; may be given again.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="So many, over the queues in turn.")] = 1,
    queue: Annotated[int | None, typer.Option(min=0, help="Only to this queue id.")] = None,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """Send a message, and say where it is and how long the answer took."""

    async def work(admin: Admin) -> list[Row]:
        text = _body(body, size)
        given = read_settings(properties or [])
        given |= {name: value for name, value in (("TAGS", tag), ("KEYS", key)) if value}
        queues = await _chosen_queues(admin, topic, broker, queue_id=queue)
        rows: list[Row] = []
        for place in islice(cycle(queues), count):
            try:
                rows.append(await _sent(admin, Message(topic, text, dict(given)), place))
            except TidemarkError as error:
                if not rows:
                    raise
                rows.append(_row(place, sentence(error)))
        return rows

    rows = ask(namesrv, work)
    say(shown(rows, as_json=as_json))
    failed = sum(row["unique_key"] is None for row in rows)
    if failed:
        say(f"tidemark admin: {failed} of {count} sends failed, see status", err=True)
        raise typer.Exit(1)


def consume(
    message_id: Annotated[str, typer.Argument(help="Offset message id, 32 or 56 hex digits.")],
    group: GroupArgument,
    client: Annotated[str, typer.Argument(help="Client id of the member (group connections).")],
    *,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """Have one member of a group consume a stored message now; its offsets stay."""

    async def work(admin: Admin) -> Row:
        read_offset_id(message_id)
        message = await admin.messages.view(message_id)
        said = await admin.messages.consume_directly(group, client, message)
        return {
            "result": said.consume_result,
            "spent_ms": said.spent_time_ms,
            "orderly": said.order,
            "remark": said.remark,
        }

    say(shown_record(ask(namesrv, work), as_json=as_json))


async def _sent(admin: Admin, message: Message, queue: MessageQueue) -> Row:
    sent = await admin.messages.send(message, queue)
    result = sent.result
    return {
        **_row(queue, result.status.value),
        "offset": result.queue_offset,
        "cost_ms": sent.cost_ms,
        "unique_key": result.message_id,
        "id": result.offset_message_id,
    }


def _row(queue: MessageQueue, status: str) -> Row:
    return {
        "broker": queue.broker_name,
        "queue": queue.queue_id,
        "status": status,
        "offset": None,
        "cost_ms": None,
        "unique_key": None,
        "id": None,
    }


def _body(text: str | None, size: int | None) -> bytes:
    if (text is None) == (size is None):
        raise ConfigError("body", text, "either a text or --size")
    return b"a" * size if size is not None else (text or "").encode()


async def _chosen_queues(
    admin: Admin, topic: str, broker: str | None, *, queue_id: int | None
) -> list[MessageQueue]:
    if broker is not None:
        await chosen_masters(admin, broker)
    queues = await admin.topics.writable_queues(topic)
    chosen = [
        one
        for one in queues
        if broker in (None, one.broker_name) and queue_id in (None, one.queue_id)
    ]
    if not chosen:
        last = {one.broker_name: one.queue_id for one in queues}
        there = ", ".join(f"{name} 0 to {number}" for name, number in last.items()) or "none"
        wanted = f"{broker or 'any broker'} {'any' if queue_id is None else queue_id}"
        raise ConfigError("queue", wanted, f"one of {topic} that may be written: {there}")
    return chosen
