"""The `tidemark admin cluster` and `admin broker` commands: broker state and settings."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.admin import Admin
from engine.admin.commands.groups import lag_cells
from engine.admin.commands.name_servers import read_settings
from engine.admin.commands.output import Row, moment, shown, shown_record
from engine.admin.commands.session import DEFAULT_NAMESRV, JsonOption, NamesrvOption, ask
from engine.admin.commands.topics import BrokerOption, chosen_masters
from engine.foundation.errors import ConfigError, TidemarkError
from engine.foundation.terminal import say

cluster = typer.Typer(no_args_is_help=True)
app = typer.Typer(no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="Name of the broker.")]


@cluster.command("list")
def list_cluster(*, namesrv: NamesrvOption = DEFAULT_NAMESRV, as_json: JsonOption = False) -> None:
    """Every broker of every cluster, with what it says of itself; one that is away says nothing."""

    async def work(admin: Admin) -> list[Row]:
        info = await admin.cluster.info()
        rows: list[Row] = []
        for cluster_name, names in sorted(info.cluster_addr_table.items()):
            for name in sorted(names):
                for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items()):
                    rows.append(await _broker_row(admin, (cluster_name, name, broker_id), address))
        return rows

    say(shown(ask(namesrv, work), as_json=as_json, empty="no broker is registered"))


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


@app.command("status")
def status(
    broker: NameArgument, *, namesrv: NamesrvOption = DEFAULT_NAMESRV, as_json: JsonOption = False
) -> None:
    """A broker's figures, under RocketMQ's names."""

    async def work(admin: Admin) -> dict[str, str]:
        (address,) = (await chosen_masters(admin, broker)).values()
        return await admin.cluster.figures(address)

    say(shown_record(ask(namesrv, work), as_json=as_json))


@app.command("config")
def config(
    broker: NameArgument,
    *,
    key: Annotated[str | None, typer.Option(help="Only keys that contain this text.")] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """A broker's settings, under RocketMQ's names."""

    async def work(admin: Admin) -> dict[str, str]:
        (address,) = (await chosen_masters(admin, broker)).values()
        settings = await admin.cluster.config(address)
        found = {name: settings[name] for name in settings if key is None or key in name}
        if not found:
            raise ConfigError("--key", key, f"part of one of {', '.join(settings)}")
        return found

    say(shown_record(ask(namesrv, work), as_json=as_json))


@app.command("set")
def set_config(
    broker: NameArgument,
    settings: Annotated[list[str], typer.Argument(help="key=value, under RocketMQ's names.")],
    *,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
) -> None:
    """Change settings of a running broker; it says which ones it keeps as they are."""

    async def work(admin: Admin) -> None:
        wanted = read_settings(settings)
        (address,) = (await chosen_masters(admin, broker)).values()
        await admin.cluster.update_config(address, wanted)

    ask(namesrv, work)
    say(f"broker {broker}: {' '.join(settings)}")


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


@app.command("ha")
def ha_status(
    broker: NameArgument, *, namesrv: NamesrvOption = DEFAULT_NAMESRV, as_json: JsonOption = False
) -> None:
    """Where a broker's log ends, and how many slaves copy it."""

    async def work(admin: Admin) -> Row:
        (address,) = (await chosen_masters(admin, broker)).values()
        ha = await admin.cluster.ha_status(address)
        return {
            "master": ha.master,
            "log_end": ha.master_commit_log_max_offset,
            "slaves": len(ha.ha_connection_info),
            "slaves_in_sync": ha.in_sync_slave_nums,
        }

    say(shown_record(ask(namesrv, work), as_json=as_json))


@app.command("wipe-write")
def wipe_write(broker: NameArgument, *, namesrv: NamesrvOption = DEFAULT_NAMESRV) -> None:
    """Let producers leave a broker: its topics lose the write permission in all name servers."""
    _set_writable(broker, namesrv, writable=False)


@app.command("add-write")
def add_write(broker: NameArgument, *, namesrv: NamesrvOption = DEFAULT_NAMESRV) -> None:
    """Let producers come back to a broker."""
    _set_writable(broker, namesrv, writable=True)


def _set_writable(broker: str, namesrv: str, *, writable: bool) -> None:
    async def work(admin: Admin) -> dict[str, int]:
        await chosen_masters(admin, broker)
        return await admin.cluster.set_writable(broker, writable=writable)

    verb = "may be written again" if writable else "may no longer be written"
    for address, count in ask(namesrv, work).items():
        say(f"name server {address}: {count} topics of {broker} {verb}")


@app.command("clean")
def clean(*, broker: BrokerOption = None, namesrv: NamesrvOption = DEFAULT_NAMESRV) -> None:
    """Delete what has expired, and queues that no topic owns, now."""

    async def work(admin: Admin) -> list[str]:
        masters = await chosen_masters(admin, broker)
        for address in masters.values():
            await admin.cluster.clean(address)
        return list(masters)

    say(f"cleaned: {', '.join(ask(namesrv, work))}")


def _first(figures: str | None) -> float | None:
    """The first of several averages, the one over the shortest time; None when unknown."""
    words = (figures or "").split()
    try:
        return round(float(words[0]), 2) if words else None
    except ValueError:
        return None
