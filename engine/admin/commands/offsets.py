"""The `tidemark admin offset` commands, which reset, set, clone and delete group offsets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from engine.admin import Admin
from engine.admin.commands.groups import GroupArgument
from engine.admin.commands.output import Row, shown
from engine.admin.commands.session import (
    DEFAULT_NAMESRV,
    JsonOption,
    NamesrvOption,
    ask,
    route_to,
    says_lines,
    shows_rows,
)
from engine.admin.commands.topics import BrokerArgument, QueueArgument, TopicArgument, queue_of
from engine.foundation.errors import ConfigError, RequestRefused
from engine.foundation.terminal import say
from engine.protocol.codes import ResponseCode
from engine.protocol.names import check_group

app = typer.Typer(no_args_is_help=True)

LATEST = -1
"""As a time: behind the newest message."""


@shows_rows(app, "reset", empty="no queue was moved")
async def reset(
    admin: Admin,
    group: GroupArgument,
    topic: TopicArgument,
    to: Annotated[
        str, typer.Argument(help="earliest, latest, a time as ISO 8601 (UTC), or ms since 1970.")
    ],
    *,
    only_back: Annotated[
        bool, typer.Option("--only-back", help="Leave queues that would move forward.")
    ] = False,
) -> list[Row]:
    """Let a group go on from the messages stored at or after a time."""
    await route_to(admin, topic)
    moved = await admin.offsets.reset(group, topic, read_time(to), force=not only_back)
    return [
        {"broker": queue.broker_name, "queue": queue.queue_id, "offset": offset}
        for queue, offset in moved.items()
    ]


@says_lines(app, "set")
async def set_offset(
    admin: Admin,
    group: GroupArgument,
    topic: TopicArgument,
    broker: BrokerArgument,
    *,
    queue: QueueArgument,
    offset: Annotated[int, typer.Argument(min=0, help="Where the group goes on.")],
) -> str:
    """Let a group go on at an offset of one queue."""
    place = await queue_of(admin, topic, broker, queue_id=queue)
    await admin.offsets.reset_queue(group, place, offset)
    return f"group {group} goes on at {offset} of {broker} queue {queue} of {topic}"


@says_lines(app, "clone")
async def clone(
    admin: Admin,
    source: Annotated[str, typer.Argument(help="Group whose offsets are copied.")],
    target: Annotated[str, typer.Argument(help="Group that gets them.")],
    topic: TopicArgument,
) -> str:
    """Let a group go on where another one is."""
    await route_to(admin, topic)
    check_group(target)
    queues = await admin.groups.consume_stats(source, topic)
    known = [
        queue for queue in queues if await admin.offsets.consume_offset(source, queue) is not None
    ]
    if not known:
        raise RequestRefused(
            ResponseCode.QUERY_NOT_FOUND,
            f"group {source} has no offset in any queue of {topic}: nothing can be cloned",
        )
    await admin.offsets.clone(source, target, topic)
    count = len(known)
    return f"group {target} goes on where {source} is in {count} queues of {topic}"


@app.command("delete")
def delete(
    group: GroupArgument,
    topic: TopicArgument,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted, only.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """Delete a group's offsets on one topic that it no longer reads."""

    async def preview(admin: Admin) -> list[Row]:
        await route_to(admin, topic)
        offsets = await admin.offsets.delete(group, topic, dry_run=True)
        if not offsets:
            raise RequestRefused(
                ResponseCode.QUERY_NOT_FOUND,
                f"group {group} has no offset in any queue of {topic}: nothing to delete",
            )
        progress = await admin.groups.consume_stats(group, topic)
        return [
            {
                "broker": queue.broker_name,
                "queue": queue.queue_id,
                "offset": offset,
                "unread": progress[queue].lag if queue in progress else None,
            }
            for queue, offset in offsets.items()
        ]

    rows = ask(namesrv, preview)
    if dry_run or not yes:
        say(shown(rows, as_json=as_json))
    if dry_run:
        return
    where = f"the offsets of group {group} on {topic}"
    if not yes:
        typer.confirm(f"Delete {where}?", abort=True, err=as_json)
    ask(namesrv, lambda admin: admin.offsets.delete(group, topic))
    if as_json and yes:
        say(shown(rows, as_json=True))
    if not as_json:
        count = "1 queue" if len(rows) == 1 else f"{len(rows)} queues"
        say(f"{where} are deleted, in {count}")


def read_time(text: str) -> int:
    """`earliest`, `latest`, ISO 8601 or milliseconds, as ms since 1970. Raises ConfigError."""
    if text == "earliest":
        return 0
    if text == "latest":
        return LATEST
    if text.isdecimal():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            "time", text, "earliest, latest, ISO 8601 such as 2030-01-31T12:00, or ms since 1970"
        ) from error
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return round(when.timestamp() * 1000)
