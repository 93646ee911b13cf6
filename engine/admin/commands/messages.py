"""`tidemark admin message ...`: single messages by id, key or time, and their traces."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.admin import Admin, FoundMessages, TracedStep
from engine.admin.commands.offsets import LATEST, read_time
from engine.admin.commands.output import Row, moment, shown, shown_record
from engine.admin.commands.session import DEFAULT_NAMESRV, JsonOption, NamesrvOption, ask, queues_of
from engine.admin.commands.topics import TopicArgument
from engine.foundation.errors import RemoteProtocolError, RequestRefused
from engine.foundation.terminal import say
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageExt, MessageQueue
from engine.protocol.message_ids import parse_offset_message_id
from engine.protocol.names import TRACE_TOPIC

app = typer.Typer(no_args_is_help=True)

BODY_CHARS_SHOWN = 60
PULL_COUNT = 32


@app.command("by-id")
def by_id(
    message_id: Annotated[str, typer.Argument(help="Offset message id, 32 or 56 hex digits.")],
    *,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """The message a broker stored under an offset message id, with all its properties."""

    async def work(admin: Admin) -> MessageExt:
        read_offset_id(message_id)
        return await admin.messages.view(message_id)

    say(shown_record(_whole(ask(namesrv, work)), as_json=as_json))


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


@app.command("by-time")
def by_time(
    topic: TopicArgument,
    *,
    begin: Annotated[str, typer.Option("--from", help="Stored at or after.")] = "earliest",
    end: Annotated[str, typer.Option("--to", help="Stored at or before.")] = "latest",
    queue: Annotated[int | None, typer.Option(min=0, help="Only this queue id.")] = None,
    count: Annotated[int, typer.Option(min=1, help="At most so many of each queue.")] = 100,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """Messages of a topic stored within a time, queue by queue; without times, all of them."""

    async def work(admin: Admin) -> list[MessageExt]:
        begin_ms, end_ms = read_time(begin), read_time(end)
        found: list[MessageExt] = []
        for one in await queues_of(admin, topic):
            if queue in (None, one.queue_id):
                found += await _stored_within(admin, one, begin_ms, end_ms=end_ms, count=count)
        return found

    rows = [line_of(message) for message in ask(namesrv, work)]
    say(shown(rows, as_json=as_json, empty="no messages"))


@app.command("trace")
def trace(
    unique_key: Annotated[str, typer.Argument(help="Unique key of the message.")],
    *,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """Senders and consumers of a message, as far as their clients write traces."""

    async def work(admin: Admin) -> list[Row]:
        await queues_of(admin, TRACE_TOPIC)
        return [_step(one) for one in await admin.messages.traced_steps(unique_key)]

    empty = f"nobody traced a message with the unique key {unique_key}"
    say(shown(ask(namesrv, work), as_json=as_json, empty=empty))


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
