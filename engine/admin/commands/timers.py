"""The `tidemark admin timer` commands, which list, cancel, export and import timers.

An order is shown first and asked about, unless --yes is given. Export writes RocketMQ's files for
the store of one broker: stop its deliveries (timerStopDequeue=true), export, stop it, and start
RocketMQ on the store with these files. Import reads a store that RocketMQ has left, and has what
waits there wait on a running broker; what waits there already, or has appeared meanwhile, is passed
over: an import that was broken off is begun again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from engine.admin import Admin
from engine.admin.api.timer_files import LeftStore, write_files
from engine.admin.commands.offsets import LATEST, read_time
from engine.admin.commands.output import Row, moment, shown
from engine.admin.commands.session import DEFAULT_NAMESRV, JsonOption, NamesrvOption, ask
from engine.admin.commands.topics import BrokerArgument, BrokerOption, chosen_masters
from engine.foundation.errors import ConfigError
from engine.foundation.limits import TIMERS_LISTED_MAX, TIMERS_READ_MAX
from engine.foundation.terminal import say
from engine.protocol.message import MessageExt, MessageQueue
from engine.protocol.timers import PendingTimer, due_by_hour
from engine.runtime import SystemClock, SystemDisk

app = typer.Typer(no_args_is_help=True)

TopicOption = Annotated[str | None, typer.Option("--topic", help="Only for this topic.")]
UntilOption = Annotated[
    str | None, typer.Option("--until", help="Due at or before: ISO 8601 (UTC) or ms since 1970.")
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Found = list[tuple[str, PendingTimer]]
"""Timers with the names of their brokers."""


@app.command("list")
def list_timers(
    *,
    topic: TopicOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show so many.")] = TIMERS_LISTED_MAX,
    by_hour: Annotated[bool, typer.Option("--by-hour", help="How many are due each hour.")] = False,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """Messages that wait for a moment, by time."""
    found, cut = ask(namesrv, lambda admin: _pending(admin, broker, topic, until))
    rows: list[Row]
    if by_hour:
        counts = due_by_hour(timer for _, timer in found)
        rows = [{"hour": moment(begin), "timers": count} for begin, count in sorted(counts.items())]
    else:
        rows = [_row(name, timer) for name, timer in found[:limit]]
    say(shown(rows, as_json=as_json, empty="nothing waits for a moment"))
    if not by_hour and len(found) > limit:
        say(f"{limit} of {len(found)} are shown: --limit, --until or --topic", err=True)
    for name in cut:
        say(
            f"{name} has more than {TIMERS_READ_MAX} records of timers: of those beyond nothing is "
            "said here",
            err=True,
        )


@app.command("cancel")
def cancel(
    key: Annotated[str, typer.Argument(help="Unique key, or one of the KEYS.")],
    *,
    topic: TopicOption = None,
    yes: YesOption = False,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """Cancel the messages with a key that wait for a moment."""
    found, _ = ask(namesrv, lambda admin: _pending(admin, broker, topic, None))
    chosen = [(name, timer) for name, timer in found if timer.has_key(key)]
    say(shown([_row(*one) for one in chosen], as_json=as_json, empty=f"nothing waits as {key}"))
    if not chosen:
        raise typer.Exit(1)
    if not yes:
        typer.confirm(f"Cancel {_count(chosen)}?", abort=True, err=as_json)

    async def work(admin: Admin) -> None:
        masters = await chosen_masters(admin, broker)
        for name, timer in chosen:
            if not timer.unique_key:
                raise ConfigError("key", key, "of messages with a unique key: others are not found")
            await admin.timers.cancel(name, masters[name], timer)

    ask(namesrv, work)
    say(f"{_count(chosen)} cancelled", err=as_json)


@app.command("export")
def export(
    broker: BrokerArgument,
    folder: Annotated[str, typer.Argument(help="Where the files go; the store, or another one.")],
    *,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
) -> None:
    """Write what waits on a broker as RocketMQ's timer files."""

    async def work(admin: Admin) -> tuple[int, list[str], bool]:
        (address,) = (await chosen_masters(admin, broker)).values()
        settings = await admin.cluster.config(address)
        found = await admin.timers.pending(broker, address)
        if found.is_cut:
            raise ConfigError("broker", broker, f"one with at most {TIMERS_READ_MAX} timer records")
        paths = write_files(SystemDisk(), folder, found, SystemClock().now_ms())
        return len(found.timers), paths, settings.get("timerStopDequeue") == "true"

    count, paths, is_stopped = ask(namesrv, work)
    say(f"{count} timers in {', '.join(paths)}")
    if not is_stopped:
        say(
            f"{broker} goes on delivering: what it delivers from now on comes again from these "
            "files. Set timerStopDequeue=true before an export that another broker starts on",
            err=True,
        )


@app.command("import")
def import_timers(
    store: Annotated[str, typer.Argument(help="Folder of a store that RocketMQ has left.")],
    *,
    yes: YesOption = False,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """Have what waits in RocketMQ's timer files wait on a running broker."""

    async def look(admin: Admin) -> list[tuple[MessageQueue, MessageExt]]:
        records = LeftStore(SystemDisk(), store).waiting()
        waiting, _ = await _pending(admin, broker, None, None)
        there = {(one.topic, one.unique_key, one.due_ms) for _, one in waiting if one.unique_key}
        masters = await chosen_masters(admin, broker)
        places: list[tuple[MessageQueue, MessageExt]] = []
        for record in records:
            timer = PendingTimer.of(record)
            if (timer.topic, timer.unique_key, timer.due_ms) in there:
                continue
            if await admin.timers.has_appeared(timer):
                continue
            queues = [
                queue
                for queue in await admin.topics.writable_queues(timer.topic)
                if queue.broker_name in masters
            ]
            if not queues:
                raise ConfigError("--broker", broker, f"one with topic {timer.topic}")
            places.append((queues[timer.queue_id % len(queues)], record))
        return places

    places = ask(namesrv, look)
    rows = [_row(queue.broker_name, PendingTimer.of(record)) for queue, record in places]
    say(shown(rows, as_json=as_json, empty="nothing waits there that does not wait here"))
    if not places:
        return
    if not yes:
        typer.confirm(f"Have {_count(rows)} wait there?", abort=True, err=as_json)

    async def work(admin: Admin) -> None:
        for queue, record in places:
            await admin.timers.send_again(queue, record)

    ask(namesrv, work)
    say(f"{_count(rows)} imported", err=as_json)


async def _pending(
    admin: Admin, broker: str | None, topic: str | None, until: str | None
) -> tuple[Found, list[str]]:
    """What waits, by time; and brokers with more records than were read."""
    until_ms = LATEST if until is None else read_time(until)
    found: Found = []
    cut: list[str] = []
    for name, address in (await chosen_masters(admin, broker)).items():
        listed = await admin.timers.pending(name, address)
        cut += [name] if listed.is_cut else []
        found += [
            (name, timer)
            for timer in listed.timers
            if topic in (None, timer.topic) and (until_ms == LATEST or timer.due_ms <= until_ms)
        ]
    return sorted(found, key=lambda one: one[1].due_ms), cut


def _row(broker: str, timer: PendingTimer) -> Row:
    return {
        "broker": broker,
        "topic": timer.topic,
        "due": moment(timer.due_ms),
        "unique_key": timer.unique_key,
        "keys": timer.keys or None,
        "offset": timer.queue_offset,
    }


def _count(of: Sequence[object]) -> str:
    return f"{len(of)} timer{'' if len(of) == 1 else 's'}"
