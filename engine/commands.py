"""The `tidemark engine`, `namesrv` and `broker` commands: options, output and exit codes.

Place in the walk: around it; the rooms know nothing of command lines.

Invariant: standard output holds the ready line and nothing else; everything else goes to standard
error. A TidemarkError is one sentence and exit code 1.
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

from engine.access_file import access_of
from engine.broker import rocketmq_settings as broker_words
from engine.broker.broker import Broker
from engine.broker.config import BrokerConfig, MetricsExporter
from engine.foreground import Party, ShipperChild, run_until_signal, serve
from engine.foundation.config import environment, split_settings
from engine.foundation.config_layers import Layer, Setting, from_flags
from engine.foundation.errors import ConfigError, TidemarkError
from engine.foundation.limits import CONNECTIONS_MAX, DESCRIPTORS_RESERVED
from engine.foundation.log_lines import write_log
from engine.foundation.terminal import complain, say
from engine.namesrv import NameServer
from engine.namesrv import config as namesrv_words
from engine.remoting.access import Access
from engine.runtime import SystemDisk, system_runtime
from engine.runtime.network import allow_descriptors
from engine.telemetry.commands import lake_address

_log = logging.getLogger(__name__)

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

NO_LAKE = "none"
DEFAULT_NAMESRV = "127.0.0.1:9876"

StoreOption = Annotated[Path, typer.Option(help="Folder of the message store; made when missing.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="RocketMQ .properties file; live changes are kept in it."),
]
PortOption = Annotated[int | None, typer.Option(help="Port to listen on; 0 takes any.")]
MetricsOption = Annotated[
    int | None, typer.Option(help="Port on which a Prometheus reads metrics; 0 takes any.")
]
FlushOption = Annotated[
    str | None,
    typer.Option(help="sync: answer after the data are on the disk; async: after the write."),
]
LakeOption = Annotated[
    str, typer.Option(help="Lake to ship facts to: a folder or a URI; none starts no shipper.")
]
HostOption = Annotated[
    str | None, typer.Option(help="IP address to listen on and to be known by; loopback if none.")
]
RemoteOption = Annotated[
    bool,
    typer.Option("--allow-remote", help="Allow an address that other machines can reach."),
]
AccessOption = Annotated[
    Path | None,
    typer.Option(help="TOML file of accounts and certificates; none: no accounts, no encryption."),
]
TelemetryOption = Annotated[
    bool, typer.Option(help="Keep a spool of facts below the store folder.")
]
StrictOption = Annotated[
    bool,
    typer.Option("--strict-store", help="Refuse to start on a damaged store."),
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
    broker_port: PortOption = None,
    flush: FlushOption = None,
    lake: LakeOption = NO_LAKE,
    host: HostOption = None,
    allow_remote: RemoteOption = False,
    access: AccessOption = None,
    telemetry: TelemetryOption = True,
    metrics_port: MetricsOption = None,
    strict_store: StrictOption = False,
    settings: SetOption = None,
) -> None:
    """Run a name server and a broker in one process, until SIGTERM or Ctrl-C."""

    async def work(stopping: asyncio.Event) -> None:
        ship_to = None if lake == NO_LAKE else lake_address(lake)
        flags = broker_flags(
            store=store,
            port=broker_port,
            host=host,
            flush=flush,
            metrics_port=metrics_port,
            strict_store=strict_store,
        )
        start = broker_start(None, [*flags, *set_flags(settings)], telemetry=telemetry)
        config = replace(start.config, access=access_of(access))
        check_host(config.host, config.access, allow_remote=allow_remote)
        check_metrics_host(config, allow_remote=allow_remote)
        named = from_flags({"bindAddress": config.host, "listenPort": str(namesrv_port)})
        connections = connections_that_fit()
        name_server = name_server_of(
            None,
            named,
            folder=config.config_folder,
            access=config.access,
            connections_max=connections // 4,
        )
        namesrv_address = f"{config.host}:{await name_server.start()}"
        parties: list[Party] = [name_server]
        try:
            config = replace(
                config,
                namesrv_addresses=(namesrv_address,),
                connections_max=connections - connections // 4,
            )
            broker = Broker(system_runtime(), config, start.origin)
            port = await broker.start()
        except BaseException:
            await name_server.stop()
            raise
        parties.append(broker)
        ready = f"ready namesrv={namesrv_address} broker={config.host}:{port}"
        await serve_and_ship(parties, stopping, ready=ready, store=store, lake=ship_to)

    run_command("engine", work)


@app.command("broker")
def broker(
    *,
    config: ConfigOption = None,
    store: Annotated[
        Path | None, typer.Option(help="Folder of the message store; made when missing.")
    ] = None,
    namesrv: Annotated[
        str | None, typer.Option(help="Name servers, host:port, separated by ';'.")
    ] = None,
    port: PortOption = None,
    flush: FlushOption = None,
    lake: LakeOption = NO_LAKE,
    host: HostOption = None,
    allow_remote: RemoteOption = False,
    access: AccessOption = None,
    telemetry: TelemetryOption = True,
    metrics_port: MetricsOption = None,
    strict_store: StrictOption = False,
    settings: SetOption = None,
) -> None:
    """Run a broker, until SIGTERM or Ctrl-C.

    Settings: defaults, then the file, then TIDEMARK_BROKER_... variables, then options.
    """

    async def work(stopping: asyncio.Event) -> None:
        ship_to = None if lake == NO_LAKE else lake_address(lake)
        flags = broker_flags(
            store=store,
            port=port,
            host=host,
            flush=flush,
            metrics_port=metrics_port,
            namesrv=namesrv,
            strict_store=strict_store,
        )
        nobody_said = from_flags({"namesrvAddr": DEFAULT_NAMESRV}, layer=Layer.DEFAULT)
        start = broker_start(
            config, [*nobody_said, *flags, *set_flags(settings)], telemetry=telemetry
        )
        settled = replace(
            start.config, access=access_of(access), connections_max=connections_that_fit()
        )
        check_host(settled.host, settled.access, allow_remote=allow_remote)
        check_metrics_host(settled, allow_remote=allow_remote)
        party = Broker(system_runtime(), settled, start.origin)
        ready = f"ready broker={settled.host}:{await party.start()}"
        root = Path(start.config.store.root)
        await serve_and_ship([party], stopping, ready=ready, store=root, lake=ship_to)

    run_command("broker", work)


@app.command("namesrv")
def namesrv(
    *,
    config: ConfigOption = None,
    port: PortOption = None,
    host: HostOption = None,
    allow_remote: RemoteOption = False,
    access: AccessOption = None,
    store: Annotated[
        Path | None, typer.Option(help="Folder for key-value settings; none keeps them in memory.")
    ] = None,
) -> None:
    """Run a name server, until SIGTERM or Ctrl-C.

    Settings: defaults, then the file, then TIDEMARK_NAMESRV_... variables, then options.
    """

    async def work(stopping: asyncio.Event) -> None:
        flags = from_flags({"bindAddress": host, "listenPort": None if port is None else str(port)})
        folder = None if store is None else str(store.absolute())
        party = name_server_of(
            config,
            flags,
            folder=folder,
            access=access_of(access),
            connections_max=connections_that_fit(),
        )
        check_host(
            party.config.host, party.config.access, allow_remote=allow_remote, is_announced=False
        )
        bound = await party.start()
        announce(f"ready namesrv={party.config.host}:{bound}")
        await serve([party], stopping)

    run_command("namesrv", work)


def broker_flags(
    *,
    store: Path | None,
    port: int | None,
    host: str | None,
    flush: str | None,
    metrics_port: int | None,
    namesrv: str | None = None,
    strict_store: bool = False,
) -> list[Setting]:
    """The options as settings by RocketMQ's keys; those not given are none."""
    kinds = {"sync": "SYNC_FLUSH", "async": "ASYNC_FLUSH"}
    if flush is not None and flush not in kinds:
        raise ConfigError("flush", flush, "sync or async")
    return from_flags(
        {
            "storePathRootDir": None if store is None else str(store),
            "listenPort": None if port is None else str(port),
            "brokerIP1": host,
            "flushDiskType": None if flush is None else kinds[flush],
            "namesrvAddr": namesrv,
            "strictStore": "true" if strict_store else None,
            "metricsExporterType": None if metrics_port is None else "PROM",
            "metricsPromExporterPort": None if metrics_port is None else str(metrics_port),
        }
    )


def set_flags(settings: list[str] | None) -> list[Setting]:
    """The words of `--set`, which have the last word."""
    return from_flags(split_settings(settings or []), "--set")


def broker_start(path: Path | None, flags: list[Setting], *, telemetry: bool) -> broker_words.Start:
    """What a broker starts with; each setting that means nothing is logged once, as a warning."""
    start = broker_words.read_start(
        SystemDisk(),
        None if path is None else str(path.absolute()),
        environment=environment(),
        flags=flags,
    )
    for warning in start.warnings:
        _log.warning("%s", warning)
    store = start.config.store
    log_path = store.commit_log_path and str(Path(store.commit_log_path).absolute())
    store = replace(store, root=str(Path(store.root).absolute()), commit_log_path=log_path)
    return replace(start, config=replace(start.config, store=store, telemetry=telemetry))


def name_server_of(
    path: Path | None,
    flags: list[Setting],
    *,
    folder: str | None,
    access: Access,
    connections_max: int,
) -> NameServer:
    """A name server, not yet started; key-value settings are kept in `folder`, if there is one."""
    if folder is not None:
        kv_path = f"{folder}/kvConfig.json"
        flags = [*from_flags({"kvConfigPath": kv_path}, layer=Layer.DEFAULT), *flags]
    start = namesrv_words.read_start(
        SystemDisk(),
        None if path is None else str(path.absolute()),
        folder=folder,
        environment=environment(),
        flags=flags,
    )
    for warning in start.warnings:
        _log.warning("%s", warning)
    config = replace(start.config, access=access, connections_max=connections_max)
    return NameServer(system_runtime(), config, start.origin)


def connections_that_fit() -> int:
    """Connections this process may have at the same time, by the limits and by what the system
    allows; it is asked to allow as many as we would take.
    """
    allowed = allow_descriptors(CONNECTIONS_MAX + DESCRIPTORS_RESERVED)
    fitting = max(allowed - DESCRIPTORS_RESERVED, allowed // 2)
    if fitting < CONNECTIONS_MAX:
        _log.warning("at most %d connections: the system allows %d descriptors", fitting, allowed)
    return fitting


def check_host(host: str, access: Access, *, allow_remote: bool, is_announced: bool = True) -> None:
    """Refuse to listen where other machines could reach us, unless the user means it and there
    are accounts. `is_announced`: clients are sent to this address, so it must be one.
    """
    try:
        address = ip_address(host)
    except ValueError as error:
        raise ConfigError("host", host, "an IP address") from error
    if address.is_loopback:
        return
    if not allow_remote or not access.accounts:
        raise ConfigError(
            "host",
            host,
            "a loopback address; where other machines reach us, --allow-remote and accounts in an "
            "--access file are needed",
        )
    if is_announced and address.is_unspecified:
        raise ConfigError(
            "host",
            host,
            "one address of this machine: clients are sent it, and to them this one is their own",
        )
    if access.server_tls is None:
        _log.warning("no [tls] in the access file: whoever listens can read and repeat requests")


def check_metrics_host(config: BrokerConfig, *, allow_remote: bool) -> None:
    """Refuse to show topics and groups to other machines, unless the user means it: whoever
    reaches the metrics reads them.
    """
    host, exporter = config.metrics_host, config.metrics_exporter
    loopback = ip_address(host).is_loopback
    if exporter is not MetricsExporter.DISABLE and not loopback and not allow_remote:
        raise ConfigError("metricsPromExporterHost", host, "a loopback address, or --allow-remote")


def announce(line: str) -> None:
    """Print the ready line for whoever waits for it."""
    say(line)
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
    shipper.start()
    try:
        await serve(parties, stopping)
    finally:
        await shipper.stop()


def run_command(name: str, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run it; a TidemarkError becomes one sentence and exit code 1."""
    write_log()
    try:
        run_until_signal(work)
    except TidemarkError as error:
        complain(f"tidemark {name}: {error}")
        raise typer.Exit(1) from error
