"""The commands `tidemark engine`, `namesrv` and `broker`: options, the ready line, exit codes.

Place in the walk: around it; the rooms know nothing of command lines.

Invariant: standard output holds the ready line and nothing else; whatever else is to be said goes
to standard error. A TidemarkError is one sentence and exit code 1.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from engine.broker.broker import Broker
from engine.broker.config import BrokerConfig, with_rocketmq_settings
from engine.foreground import Party, ShipperChild, run_until_signal, serve
from engine.foundation.config import split_settings
from engine.foundation.errors import ConfigError, TidemarkError
from engine.namesrv import NameServer, NameServerConfig
from engine.runtime import system_runtime
from engine.store import FlushDiskType, StoreConfig
from engine.telemetry.commands import lake_address

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

NO_LAKE = "none"
LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"

StoreOption = Annotated[Path, typer.Option(help="Folder of the message store; made when missing.")]
FlushOption = Annotated[
    str, typer.Option(help="sync: answer after the data are on the disk; async: after the write.")
]
LakeOption = Annotated[
    str, typer.Option(help="Lake to ship facts to: a folder or a URI; none starts no shipper.")
]
HostOption = Annotated[str, typer.Option(help="IP address to listen on and to be known by.")]
RemoteOption = Annotated[
    bool,
    typer.Option("--allow-remote", help="Allow an address that other machines can reach."),
]
TelemetryOption = Annotated[
    bool, typer.Option(help="Keep a spool of facts below the store folder.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting by its RocketMQ name: --set brokerName=broker-b"),
]


@app.command("engine")
def engine(
    store: StoreOption,
    *,
    namesrv_port: Annotated[int, typer.Option(help="Port of the name server; 0 takes any.")] = 9876,
    broker_port: Annotated[int, typer.Option(help="Port of the broker; 0 takes any.")] = 10911,
    flush: FlushOption = "async",
    lake: LakeOption = NO_LAKE,
    host: HostOption = "127.0.0.1",
    allow_remote: RemoteOption = False,
    telemetry: TelemetryOption = True,
    settings: SetOption = None,
) -> None:
    """Run a name server and a broker in one process, until SIGTERM or Ctrl-C."""

    async def work(stopping: asyncio.Event) -> None:
        check_host(host, allow_remote=allow_remote)
        ship_to = None if lake == NO_LAKE else lake_address(lake)
        config = broker_config(
            store, flush, host=host, port=broker_port, telemetry=telemetry, settings=settings or []
        )
        kv_path = f"{config.config_folder}/kvConfig.json"
        namesrv_config = NameServerConfig(host=host, port=namesrv_port, kv_path=kv_path)
        name_server = NameServer(system_runtime(), namesrv_config)
        namesrv_address = f"{host}:{await name_server.start()}"
        parties: list[Party] = [name_server]
        try:
            broker = Broker(system_runtime(), replace(config, namesrv_addresses=(namesrv_address,)))
            port = await broker.start()
        except BaseException:
            await name_server.stop()
            raise
        parties.append(broker)
        ready = f"ready namesrv={namesrv_address} broker={host}:{port}"
        await serve_and_ship(parties, stopping, ready=ready, store=store, lake=ship_to)

    run_command("engine", work)


@app.command("broker")
def broker(
    store: StoreOption,
    *,
    namesrv: Annotated[
        str, typer.Option(help="Name servers, host:port, separated by ';'.")
    ] = "127.0.0.1:9876",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes any.")] = 10911,
    flush: FlushOption = "async",
    lake: LakeOption = NO_LAKE,
    host: HostOption = "127.0.0.1",
    allow_remote: RemoteOption = False,
    telemetry: TelemetryOption = True,
    settings: SetOption = None,
) -> None:
    """Run a broker, until SIGTERM or Ctrl-C."""

    async def work(stopping: asyncio.Event) -> None:
        check_host(host, allow_remote=allow_remote)
        ship_to = None if lake == NO_LAKE else lake_address(lake)
        config = broker_config(
            store, flush, host=host, port=port, telemetry=telemetry, settings=settings or []
        )
        addresses = tuple(part.strip() for part in namesrv.split(";") if part.strip())
        party = Broker(system_runtime(), replace(config, namesrv_addresses=addresses))
        bound = await party.start()
        ready = f"ready broker={host}:{bound}"
        await serve_and_ship([party], stopping, ready=ready, store=store, lake=ship_to)

    run_command("broker", work)


@app.command("namesrv")
def namesrv(
    *,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes any.")] = 9876,
    host: HostOption = "127.0.0.1",
    allow_remote: RemoteOption = False,
    store: Annotated[
        Path | None, typer.Option(help="Folder for key-value settings; none keeps them in memory.")
    ] = None,
) -> None:
    """Run a name server, until SIGTERM or Ctrl-C."""

    async def work(stopping: asyncio.Event) -> None:
        check_host(host, allow_remote=allow_remote)
        kv_path = None if store is None else f"{store.absolute()}/kvConfig.json"
        party = NameServer(
            system_runtime(), NameServerConfig(host=host, port=port, kv_path=kv_path)
        )
        bound = await party.start()
        announce(f"ready namesrv={host}:{bound}")
        await serve([party], stopping)

    run_command("namesrv", work)


def broker_config(
    store: Path, flush: str, *, host: str, port: int, telemetry: bool, settings: list[str]
) -> BrokerConfig:
    """The broker's settings: flags first, then `--set`, which has the last word."""
    kinds = {"sync": FlushDiskType.SYNC_FLUSH, "async": FlushDiskType.ASYNC_FLUSH}
    if flush not in kinds:
        raise ConfigError("flush", flush, "sync or async")
    config = BrokerConfig(
        store=StoreConfig(root=str(store.absolute()), flush_disk_type=kinds[flush]),
        host=host,
        port=port,
        telemetry=telemetry,
    )
    return with_rocketmq_settings(config, split_settings(settings))


def check_host(host: str, *, allow_remote: bool) -> None:
    """Refuse to listen where other machines could reach us, unless the user means it: there is no
    authentication.
    """
    try:
        address = ip_address(host)
    except ValueError as error:
        raise ConfigError("host", host, "an IP address") from error
    if not address.is_loopback and not allow_remote:
        raise ConfigError(
            "host", host, "a loopback address, or --allow-remote: whoever reaches it may use it"
        )


def announce(line: str) -> None:
    """Print the ready line for whoever waits for it."""
    typer.echo(line)
    sys.stdout.flush()


async def serve_and_ship(
    parties: list[Party], stopping: asyncio.Event, *, ready: str, store: Path, lake: str | None
) -> None:
    """Serve until a signal; with a lake, a shipper of our own runs beside and outlives the broker
    until it has shipped the last row.
    """
    announce(ready)
    if lake is None:
        await serve(parties, stopping)
        return
    shipper = ShipperChild(store, lake)
    shipping = asyncio.create_task(shipper.run())
    try:
        await serve(parties, stopping)
    finally:
        await shipper.stop()
        shipping.cancel()
        await asyncio.gather(shipping, return_exceptions=True)


def run_command(name: str, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run it; a TidemarkError becomes one sentence and exit code 1."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    try:
        run_until_signal(work)
    except TidemarkError as error:
        typer.echo(f"tidemark {name}: {error}", err=True)
        raise typer.Exit(1) from error
