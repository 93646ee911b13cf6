"""The `tidemark admin cluster` and `admin broker` commands: broker state and settings."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.admin import Admin
from engine.admin.commands.groups import lag_cells
from engine.admin.commands.name_servers import read_settings
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
from engine.foundation.errors import ConfigError, TidemarkError
from engine.foundation.terminal import say

cluster = typer.Typer(no_args_is_help=True)
app = typer.Typer(no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="Name of the broker.")]


@shows_rows(cluster, "list", empty="no broker is registered")
async def list_cluster(admin: Admin) -> list[Row]:
    """Every broker of every cluster, with what it says of itself; one that is away says nothing."""
    info = await admin.cluster.info()
    rows: list[Row] = []
    for cluster_name, names in sorted(info.cluster_addr_table.items()):
        for name in sorted(names):
            for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items()):
                rows.append(await _broker_row(admin, (cluster_name, name, broker_id), address))
    return rows


async def _broker_row(admin: Admin, place: tuple[str, str, int], address: str) -> Row:
    try:
        figures, state = await admin.cluster.figures(address), "up"
    except TidemarkError as error:
        figures, state = {}, f"no answer: {error}"
    boot = figures.get("bootTimestamp", "")
    return {
        "cluster": place[0],
        "broker": place[1],
        "broker_id": place[2],
        "address": address,
        "version": figures.get("brokerVersionDesc"),
        "in_tps": _first(figures.get("putTps")),
        "out_tps": _first(figures.get("getTransferredTps")),
        "disk": figures.get("commitLogDiskRatio"),
        "booted": moment(int(boot)) if boot.isdecimal() else None,
        "state": state,
    }


@shows_record(app, "status")
async def status(admin: Admin, broker: NameArgument) -> dict[str, str]:
    """A broker's figures, under RocketMQ's names."""
    (address,) = (await chosen_masters(admin, broker)).values()
    return await admin.cluster.figures(address)


@shows_record(app, "config")
async def config(
    admin: Admin,
    broker: NameArgument,
    *,
    key: Annotated[str | None, typer.Option(help="Only keys that contain this text.")] = None,
) -> dict[str, str]:
    """A broker's settings, under RocketMQ's names."""
    (address,) = (await chosen_masters(admin, broker)).values()
    settings = await admin.cluster.config(address)
    found = {name: settings[name] for name in settings if key is None or key in name}
    if not found:
        raise ConfigError("--key", key, f"part of one of {', '.join(settings)}")
    return found


@says_lines(app, "set")
async def set_config(
    admin: Admin,
    broker: NameArgument,
    settings: Annotated[list[str], typer.Argument(help="key=value, under RocketMQ's names.")],
) -> str:
    """Change settings of a running broker; it says which ones it keeps as they are."""
    wanted = read_settings(settings)
    (address,) = (await chosen_masters(admin, broker)).values()
    await admin.cluster.update_config(address, wanted)
    return f"broker {broker}: {' '.join(settings)}"


@app.command("progress")
def progress(
    broker: NameArgument, *, namesrv: NamesrvOption = DEFAULT_NAMESRV, as_json: JsonOption = False
) -> None:
    """How far every group is in each queue of a broker that it has offsets of."""

    async def work(admin: Admin) -> list[Row]:
        (address,) = (await chosen_masters(admin, broker)).values()
        return [
            {
                "group": group,
                "topic": queue.topic,
                "queue": queue.queue_id,
                "broker_offset": progress.broker_offset,
                "consumer_offset": progress.consumer_offset,
                **lag_cells(progress, as_json=as_json),
                "last_consumed": moment(progress.last_timestamp_ms),
            }
            for group, rows in (await admin.groups.broker_consume_stats(address)).items()
            for queue, progress in rows.items()
        ]

    rows = ask(namesrv, work)
    say(shown(rows, as_json=as_json, empty=f"no group has offsets on {broker}"))


@shows_record(app, "ha")
async def ha_status(admin: Admin, broker: NameArgument) -> Row:
    """Where a broker's log ends, and how many slaves copy it."""
    (address,) = (await chosen_masters(admin, broker)).values()
    ha = await admin.cluster.ha_status(address)
    return {
        "master": ha.master,
        "log_end": ha.master_commit_log_max_offset,
        "slaves": len(ha.ha_connection_info),
        "slaves_in_sync": ha.in_sync_slave_nums,
    }


@says_lines(app, "wipe-write")
async def wipe_write(admin: Admin, broker: NameArgument) -> list[str]:
    """Let producers leave a broker: its topics lose the write permission in all name servers."""
    return await _set_writable(admin, broker, writable=False)


@says_lines(app, "add-write")
async def add_write(admin: Admin, broker: NameArgument) -> list[str]:
    """Let producers come back to a broker."""
    return await _set_writable(admin, broker, writable=True)


async def _set_writable(admin: Admin, broker: str, *, writable: bool) -> list[str]:
    await chosen_masters(admin, broker)
    verb = "may be written again" if writable else "may no longer be written"
    counts = await admin.cluster.set_writable(broker, writable=writable)
    return [
        f"name server {address}: {count} topics of {broker} {verb}"
        for address, count in counts.items()
    ]


@says_lines(app, "clean")
async def clean(admin: Admin, *, broker: BrokerOption = None) -> str:
    """Delete what has expired, and queues that no topic owns, now."""
    masters = await chosen_masters(admin, broker)
    for address in masters.values():
        await admin.cluster.clean(address)
    return f"cleaned: {', '.join(masters)}"


def _first(figures: str | None) -> float | None:
    """The first of several averages, the one over the shortest time; None when unknown."""
    words = (figures or "").split()
    try:
        return round(float(words[0]), 2) if words else None
    except ValueError:
        return None
