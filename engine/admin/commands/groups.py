"""The `tidemark admin group` commands: consumer-group settings, progress and members."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

import typer

from engine.admin import Admin
from engine.admin.api.groups import QueueProgress, total
from engine.admin.commands.output import Row, moment, shown
from engine.admin.commands.session import (
    DEFAULT_NAMESRV,
    JsonOption,
    NamesrvOption,
    ask,
    says_lines,
    shows_record,
    shows_rows,
)
from engine.admin.commands.topics import BrokerOption, chosen_masters
from engine.foundation.errors import RequestRefused
from engine.foundation.terminal import say
from engine.protocol.codes import ResponseCode
from engine.protocol.names import check_group

app = typer.Typer(no_args_is_help=True)

GroupArgument = Annotated[str, typer.Argument(help="Name of the consumer group.")]


@shows_rows(app, "list", empty="no groups")
async def list_groups(admin: Admin) -> list[Row]:
    """All groups the brokers know, with the settings that matter most."""
    return [
        {
            "group": name,
            "consume": config.get("consumeEnable"),
            "broadcast": config.get("consumeBroadcastEnable"),
            "orderly": config.get("consumeMessageOrderly"),
            "retries": config.get("retryMaxTimes"),
            "retry_queues": config.get("retryQueueNums"),
        }
        for name, config in (await admin.groups.configs()).items()
    ]


@shows_record(app, "show")
async def show(admin: Admin, group: GroupArgument) -> Row:
    """A group's settings, under RocketMQ's names."""
    return {
        name: value if isinstance(value, str | int | float | bool | None) else str(value)
        for name, value in _known(await admin.groups.configs(), group).items()
    }


@says_lines(app, "create")
async def create(
    admin: Admin,
    group: GroupArgument,
    *,
    retries: Annotated[int, typer.Option(help="Tries of a failed message before the DLQ.")] = 16,
    consume: Annotated[bool, typer.Option(help="May members pull?")] = True,
    broadcast: Annotated[bool, typer.Option(help="May members broadcast?")] = True,
    broker: BrokerOption = None,
) -> str:
    """Create a group, or change these settings of an existing one."""
    check_group(group)
    masters = await chosen_masters(admin, broker)
    before = (await admin.groups.configs()).get(group, {})
    settings = before | {
        "groupName": group,
        "retryMaxTimes": retries,
        "consumeEnable": consume,
        "consumeBroadcastEnable": broadcast,
    }
    for address in masters.values():
        await admin.groups.put(address, settings)
    names = list(masters)
    return f"group {group}: up to {retries} retries, on {', '.join(names)}"


@app.command("delete")
def delete(
    group: GroupArgument,
    *,
    offsets: Annotated[bool, typer.Option("--offsets", help="Delete its offsets, too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
) -> None:
    """Delete a group's settings on every broker."""
    if not yes:
        with_them = " and its offsets" if offsets else ""
        typer.confirm(f"Delete group {group}{with_them}?", abort=True)

    async def work(admin: Admin) -> None:
        _known(await admin.groups.configs(), group)
        for address in (await admin.cluster.masters()).values():
            await admin.groups.delete(address, group, with_offsets=offsets)

    ask(namesrv, work)
    say(f"group {group} is deleted{', its offsets too' if offsets else ''}")


@app.command("progress")
def progress(
    group: Annotated[
        str | None, typer.Argument(help="Name of the consumer group; all of them in short.")
    ] = None,
    *,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """How far a group is in each queue: offsets, messages behind, time of the last consumed."""

    if group is None:
        rows = ask(namesrv, lambda admin: _in_short(admin, topic, as_json=as_json))
        say(shown(rows, as_json=as_json, empty="no groups"))
        return

    async def work(admin: Admin) -> list[Row]:
        stats = await admin.groups.consume_stats(group, topic)
        if not stats:
            _known(await admin.groups.configs(), group)
        found.extend(stats.values())
        return [
            {
                "topic": queue.topic,
                "broker": queue.broker_name,
                "queue": queue.queue_id,
                "broker_offset": progress_here.broker_offset,
                "consumer_offset": progress_here.consumer_offset,
                **lag_cells(progress_here, as_json=as_json),
                "last_consumed": moment(progress_here.last_timestamp_ms),
            }
            for queue, progress_here in stats.items()
        ]

    found: list[QueueProgress] = []
    rows = ask(namesrv, work)
    say(shown(rows, as_json=as_json, empty=f"group {group} has no offsets"))
    if rows and not as_json:
        lag, inflight = total(one.lag for one in found), total(one.inflight for one in found)
        why = next((one.why_unknown for one in found if one.why_unknown), "")
        say(f"\nlag {unless_unknown(lag, why)}, inflight {unless_unknown(inflight, '')}")


async def _in_short(admin: Admin, topic: str | None, *, as_json: bool) -> list[Row]:
    """Every group that the brokers know, one row each."""
    rows: list[Row] = []
    for group in await admin.groups.configs():
        members = (await admin.groups.members(group)).values()
        progress = (await admin.groups.consume_stats(group, topic)).values()
        ids = {one.client_id for members_here in members for one in members_here.connection_set}
        rows.append(
            {
                "group": group,
                "members": len(ids),
                "model": next((members_here.message_model for members_here in members), None),
                "queues": len(progress),
                **_lags(progress, as_json=as_json),
            }
        )
    return rows


def _lags(progress: Collection[QueueProgress], *, as_json: bool) -> Row:
    lag, inflight = total(one.lag for one in progress), total(one.inflight for one in progress)
    if as_json or lag is not None:
        return {"lag": lag, "inflight": inflight}
    beyond = sum(one.is_beyond_end for one in progress)
    why = f"unknown: {beyond} of {len(progress)} offsets are beyond the end of their queue"
    return {"lag": why, "inflight": None}


def lag_cells(progress: QueueProgress, *, as_json: bool) -> Row:
    """Lag and what is in flight; where they are not known, why: in JSON they are null and
    `lag_unknown` says it.
    """
    if as_json:
        return {
            "lag": progress.lag,
            "inflight": progress.inflight,
            "lag_unknown": progress.why_unknown,
        }
    return {
        "lag": unless_unknown(progress.lag, progress.why_unknown or ""),
        "inflight": progress.inflight,
    }


def unless_unknown(count: int | None, why: str) -> int | str:
    """The number, or that it is unknown and why."""
    return count if count is not None else f"unknown: {why}" if why else "unknown"


@shows_rows(app, "connections")
async def connections(admin: Admin, group: GroupArgument) -> list[Row]:
    """The members of a group, and what they subscribe to, as each broker sees them."""
    found = await admin.groups.members(group)
    if not found:
        raise not_online(group)
    return [
        {
            "broker": name,
            "client_id": member.client_id,
            "address": member.client_addr,
            "language": member.language,
            "version": member.version,
            "model": connections_here.message_model,
            "subscription": " ".join(
                f"{topic}:{data.sub_string}"
                for topic, data in sorted(connections_here.subscription_table.items())
            ),
        }
        for name, connections_here in found.items()
        for member in sorted(connections_here.connection_set, key=lambda one: one.client_id)
    ]


@app.command("running")
def running(
    group: GroupArgument,
    *,
    client: Annotated[str | None, typer.Option(help="Only this client id.")] = None,
    stack: Annotated[bool, typer.Option("--stack", help="Its threads' stacks, too.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """What each member holds of its queues right now, asked of the member itself."""
    stacks: list[str] = []

    async def work(admin: Admin) -> list[Row]:
        rows: list[Row] = []
        masters = await admin.cluster.masters()
        addresses: dict[str, str] = {}
        for name, connections_here in (await admin.groups.members(group)).items():
            for member in connections_here.connection_set:
                addresses.setdefault(member.client_id, masters[name])
        if client is not None:
            addresses = {one: address for one, address in addresses.items() if one == client}
        if not addresses:
            raise not_online(group if client is None else f"{group}, client {client}")
        for client_id, address in sorted(addresses.items()):
            info = await admin.groups.running_info(address, group, client_id, stacks=stack)
            if info.says_nothing:
                stacks.append(f"{client_id} says nothing of what it holds")
            if info.jstack:
                stacks.append(f"{client_id}\n{info.jstack}")
            rows += [
                {
                    "client_id": client_id,
                    "topic": queue.topic,
                    "broker": queue.broker_name,
                    "queue": queue.queue_id,
                    "committed": held.commit_offset,
                    "held": held.cached_msg_count,
                    "first_held": held.cached_msg_min_offset if held.cached_msg_count else None,
                    "last_held": held.cached_msg_max_offset if held.cached_msg_count else None,
                    "locked": held.locked,
                    "last_pull": moment(held.last_pull_timestamp_ms),
                    "last_consume": moment(held.last_consume_timestamp_ms),
                }
                for queue, held in sorted(info.mq_table.items())
            ]
        return rows

    rows = ask(namesrv, work)
    say(shown(rows, as_json=as_json, empty="no queue is held"))
    for one in stacks:
        say(f"\n{one}", err=as_json)


@shows_rows(app, "producers", empty="no producers")
async def producers(admin: Admin, *, broker: BrokerOption = None) -> list[Row]:
    """Connected producers, by producer group."""
    return [
        {
            "broker": name,
            "group": group,
            "client_id": one.client_id,
            "address": one.remote_ip.lstrip("/"),
            "language": one.language,
            "version": one.version,
            "last_heartbeat": moment(one.last_update_timestamp_ms),
        }
        for name, address in (await chosen_masters(admin, broker)).items()
        for group, members in (await admin.groups.producers(address)).items()
        for one in members
    ]


def not_online(group: str) -> RequestRefused:
    """Nobody of the group is connected to any broker."""
    return RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE, f"nobody is online of group {group}")


def _known(configs: dict[str, dict[str, Any]], group: str) -> dict[str, Any]:
    if group not in configs:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"no broker knows the group {group}"
        )
    return configs[group]
