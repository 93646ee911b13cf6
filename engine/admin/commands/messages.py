"""The `tidemark admin message` commands, which send, find, trace and consume messages."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Annotated

import typer

from engine.admin import Admin, FoundMessages, TracedStep
from engine.admin.commands.groups import GroupArgument
from engine.admin.commands.name_servers import read_settings
from engine.admin.commands.offsets import LATEST, read_time
from engine.admin.commands.output import Row, moment, shown
from engine.admin.commands.session import (
    DEFAULT_NAMESRV,
    JsonOption,
    NamesrvOption,
    ask,
    queues_of,
    sentence,
    shows_record,
    shows_rows,
)
from engine.admin.commands.topics import (
    BrokerArgument,
    BrokerOption,
    QueueArgument,
    TopicArgument,
    chosen_masters,
    queue_of,
)
from engine.foundation.errors import ConfigError, RemoteProtocolError, RequestRefused, TidemarkError
from engine.foundation.terminal import say
from engine.protocol.codes import ResponseCode
from engine.protocol.message import Message, MessageExt, MessageQueue
from engine.protocol.message_ids import parse_offset_message_id
from engine.protocol.names import TRACE_TOPIC

app = typer.Typer(no_args_is_help=True)

BODY_CHARS_SHOWN = 60
PULL_COUNT = 32


@shows_record(app, "by-id")
async def by_id(
    admin: Admin,
    message_id: Annotated[str, typer.Argument(help="Offset message id, 32 or 56 hex digits.")],
) -> Row:
    """The message a broker stored under an offset message id, with all its properties."""
    read_offset_id(message_id)
    return _whole(await admin.messages.view(message_id))


@app.command("by-key")
def by_key(
    topic: TopicArgument,
    key: Annotated[str, typer.Argument(help="One of the message's KEYS, or its unique key.")],
    *,
    unique: Annotated[bool, typer.Option("--unique", help="The key is a unique key.")] = False,
    begin: Annotated[str, typer.Option("--from", help="Stored at or after.")] = "earliest",
    end: Annotated[str, typer.Option("--to", help="Stored at or before.")] = "latest",
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """Messages of a topic with a key, oldest first."""

    async def work(admin: Admin) -> FoundMessages:
        begin_ms, end_ms = read_time(begin), read_time(end)
        await queues_of(admin, topic)
        return await admin.messages.query(
            topic,
            key,
            begin_ms=begin_ms,
            end_ms=2**63 - 1 if end_ms == LATEST else end_ms,
            is_unique_key=unique,
        )

    found = ask(namesrv, work)
    rows = [line_of(message) for message in found]
    say(shown(rows, as_json=as_json, empty=f"no message of {topic} has the key {key}"))
    if found.is_cut:
        say(
            f"these are the newest {len(rows)}, older ones may have the key too: ask for those "
            "before a time with --to",
            err=True,
        )


@shows_rows(app, "by-time", empty="no messages")
async def by_time(
    admin: Admin,
    topic: TopicArgument,
    *,
    begin: Annotated[str, typer.Option("--from", help="Stored at or after.")] = "earliest",
    end: Annotated[str, typer.Option("--to", help="Stored at or before.")] = "latest",
    queue: Annotated[int | None, typer.Option(min=0, help="Only this queue id.")] = None,
    count: Annotated[int, typer.Option(min=1, help="At most so many of each queue.")] = 100,
) -> list[Row]:
    """Messages of a topic stored within a time, queue by queue; without times, all of them."""
    begin_ms, end_ms = read_time(begin), read_time(end)
    found: list[MessageExt] = []
    for one in await queues_of(admin, topic):
        if queue in (None, one.queue_id):
            found += await _stored_within(admin, one, begin_ms, end_ms=end_ms, count=count)
    return [line_of(message) for message in found]


@shows_rows(app, "trace", empty="nobody traced a message with the unique key {unique_key}")
async def trace(
    admin: Admin,
    unique_key: Annotated[str, typer.Argument(help="Unique key of the message.")],
) -> list[Row]:
    """Senders and consumers of a message, as far as their clients write traces."""
    await queues_of(admin, TRACE_TOPIC)
    return [_step(one) for one in await admin.messages.traced_steps(unique_key)]


def _step(one: TracedStep) -> Row:
    """A traced step as one row of a list."""
    return {
        "step": one.step,
        "time": moment(one.time_ms),
        "group": one.group,
        "cost_ms": one.cost_ms,
        "success": one.success,
        "keys": one.keys,
    }


async def _stored_within(
    admin: Admin, queue: MessageQueue, begin_ms: int, *, end_ms: int, count: int
) -> list[MessageExt]:
    offset = await admin.offsets.search(queue, begin_ms)
    end_offset = await admin.offsets.max_offset(queue)
    found: list[MessageExt] = []
    while offset < end_offset and len(found) < count:
        some = await admin.messages.read(
            queue, offset, count_max=min(PULL_COUNT, count - len(found))
        )
        if not some:
            break
        for message in some:
            if end_ms != LATEST and message.store_timestamp_ms > end_ms:
                return found
            found.append(message)
        offset = some[-1].queue_offset + 1
    return found


def read_offset_id(text: str) -> None:
    """Raises RequestRefused for a text that is no offset message id."""
    try:
        parse_offset_message_id(text)
    except RemoteProtocolError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error


def line_of(message: MessageExt) -> Row:
    """A message as one row of a list."""
    text = message.body.decode(errors="replace")
    cut = text if len(text) <= BODY_CHARS_SHOWN else text[: BODY_CHARS_SHOWN - 1] + "…"
    return {
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "stored": moment(message.store_timestamp_ms),
        "tag": message.tags,
        "keys": message.keys,
        "unique_key": message.uniq_key,
        "id": message.offset_message_id,
        "retries": message.reconsume_times,
        "body": cut.replace("\n", "\\n"),
    }


def _whole(message: MessageExt) -> Row:
    """A message with everything the store knows of it."""
    return {
        "topic": message.topic,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "stored": moment(message.store_timestamp_ms),
        "born": moment(message.born_timestamp_ms),
        "store_host": message.store_host,
        "born_host": message.born_host,
        "retries": message.reconsume_times,
        "sys_flag": message.sys_flag,
        **{f"property {name}": value for name, value in sorted(message.properties.items())},
        "body": message.body.decode(errors="replace"),
    }


@shows_rows(app, "by-offset", empty="no messages")
async def by_offset(
    admin: Admin,
    topic: TopicArgument,
    broker: BrokerArgument,
    *,
    queue: QueueArgument,
    offset: Annotated[int, typer.Argument(min=0, help="Queue offset of the first one.")],
    count: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1,
) -> list[Row]:
    """Messages of one queue from an offset on."""
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
    return [line_of(message) for message in found]


@app.command("send")
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


@shows_record(app, "consume")
async def consume(
    admin: Admin,
    message_id: Annotated[str, typer.Argument(help="Offset message id, 32 or 56 hex digits.")],
    group: GroupArgument,
    client: Annotated[str, typer.Argument(help="Client id of the member (group connections).")],
) -> Row:
    """Have one member of a group consume a stored message now; its offsets stay."""
    read_offset_id(message_id)
    message = await admin.messages.view(message_id)
    said = await admin.messages.consume_directly(group, client, message)
    return {
        "result": said.consume_result,
        "spent_ms": said.spent_time_ms,
        "orderly": said.order,
        "remark": said.remark,
    }


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
