"""The `tidemark observe` command, which watches a cluster through its admin protocol.

Place in the walk: around `engine.observer`; a shipper runs for each broker that is watched.

Invariant: as `engine.commands`: one ready line on standard output, a TidemarkError is one sentence
and exit code 1.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from engine.admin import Admin, admin_at
from engine.broker.metrics import MetricsPort
from engine.commands import NO_LAKE, MetricsOption, announce, run_command
from engine.foreground import ShipperChild, serve
from engine.foundation.errors import ConfigError, RequestRefused, StorageError, TidemarkError
from engine.foundation.units import SECOND_MS
from engine.observer.broker_watch import Watched
from engine.observer.cluster_watch import BROKERS_WATCHED_MAX, ClusterWatch, masters_of
from engine.observer.home_folder import known_brokers, lock_path, take_home
from engine.observer.observation import Observation, stranger
from engine.observer.poll_metrics import pages_of
from engine.observer.proxies import check_proxies
from engine.observer.retiring import retire as retire_for_good
from engine.observer.retiring import retired_brokers
from engine.protocol.bodies import ClusterInfo
from engine.protocol.names import check_broker_word
from engine.runtime import SystemDisk, system_runtime
from engine.telemetry.commands import lake_address
from engine.telemetry.telemetry import SPOOL_DIRECTORY

PERIOD_S_MAX: Final = 60
"""Every mark is emitted each ten minutes, and must be before it is taken for gone."""
WINDOW_MS: Final = 30_000
"""The window by which the pipeline judges a queue, unless it is set otherwise."""
OBSERVER: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
TAKEN: Final = (".", "..", SPOOL_DIRECTORY)
"""Folders of the same place."""


def seconds_of(text: str) -> float:
    """Seconds that are written with their unit, or without. Raises ValueError."""
    return float(str(text).removesuffix("s"))


ProxyOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Remoting port of a proxy of the cluster, host:port: who reads through it; repeatable."
    ),
]
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
_log = logging.getLogger(__name__)


@app.command("observe")
def observe(
    namesrv: Annotated[
        str, typer.Option("--namesrv", "-n", help="Name servers, host:port, split by ';'.")
    ],
    *,
    cluster: Annotated[
        list[str] | None, typer.Option(help="Watch this cluster only; repeatable.")
    ] = None,
    called: Annotated[
        str | None,
        typer.Option("--as", help="What the lake calls the one cluster that is watched."),
    ] = None,
    proxy: ProxyOption = None,
    lake: Annotated[
        str, typer.Option(help="Lake to ship facts to: a folder or a URI; none ships nothing.")
    ] = NO_LAKE,
    home: Annotated[Path, typer.Option(help="Folder for a spool of each broker.")] = Path(
        "var/observer"
    ),
    period: Annotated[
        float,
        typer.Option(
            parser=seconds_of, metavar="SECONDS", help="From one look to the next: 10, or 10s."
        ),
    ] = 10.0,
    window_ms: Annotated[
        int, typer.Option(help="The window by which the pipeline judges (its --window-ms).")
    ] = WINDOW_MS,
    observer: Annotated[
        str, typer.Option(help="Name of this observer; two of one cluster need two names.")
    ] = "observer",
    retire: Annotated[
        list[str] | None,
        typer.Option(help="Tell that this broker is gone for good, and end; repeatable."),
    ] = None,
    metrics_port: MetricsOption = None,
    metrics_host: Annotated[str, typer.Option(help="Address to serve them on.")] = "127.0.0.1",
    metrics_allow_host: Annotated[
        list[str] | None, typer.Option(help="Host name they may be asked by; repeatable.")
    ] = None,
    credentials: Annotated[
        str | None,
        typer.Option(
            envvar="TIDEMARK_CREDENTIALS",
            help="TOML file: accessKey, secretKey, and a table tls with authorities.",
        ),
    ] = None,
) -> None:
    """Watch a RocketMQ cluster from outside, until SIGTERM or Ctrl-C; nothing in it is changed."""

    async def work(stopping: asyncio.Event) -> None:
        period_ms = period_ms_of(period, window_ms=window_ms)
        check_names(observer, called)
        ship_to = None if lake == NO_LAKE else lake_address(lake)
        admin = admin_at(namesrv, credentials=credentials)
        observation = Observation(
            *(frozenset(cluster or ()), observer, str(home.absolute()), period_ms),
            called=called,
            name_servers=";".join(sorted(filter(None, map(str.strip, namesrv.split(";"))))),
            proxies=check_proxies(proxy or ()),
        )
        if retire:
            await retire_brokers(admin, observation, retire, ship_to)
            return
        metrics = None
        if metrics_port is not None:
            metrics = Metrics(metrics_port, metrics_host, tuple(metrics_allow_host or ()))
        await watch_from_home(stopping, admin, observation, ship_to, metrics=metrics)

    run_command("observe", work)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where a Prometheus finds the observer."""

    port: int
    """0 takes a free one."""
    host: str
    names: Sequence[str] = ()
    """Host names by which it may be asked."""


async def watch_from_home(
    stopping: asyncio.Event,
    admin: Admin,
    observation: Observation,
    ship_to: str | None,
    *,
    metrics: Metrics | None,
) -> None:
    """Watch, when nobody else does from this home under this name, and the clusters are there."""
    lock = take_home(SystemDisk(), observation.home, observation.observer)
    if lock is None:
        raise StorageError(
            f"another process observes with the home {observation.home} under the name "
            f"{observation.observer} "
            f"({lock_path(observation.home, observation.observer)} is taken): stop that one, or "
            "give this one a name (--observer) or a home of its own"
        )
    try:
        info = await admin.cluster.info()  # A wrong address fails at once.
        observation = observation.checked(info)
        if ship_to is not None:
            await refuse_strangers(observation, info, ship_to)
        ready = f"ready namesrv={observation.name_servers}"
        await watch_until(stopping, admin, observation, ship_to, ready=ready, metrics=metrics)
    finally:
        lock.close()


async def watch_until(
    stopping: asyncio.Event,
    admin: Admin,
    observation: Observation,
    ship_to: str | None,
    *,
    ready: str,
    metrics: Metrics | None = None,
) -> None:
    """Watch, with a shipper for each broker that is not gone."""
    shippers: dict[str, ShipperChild] = {}

    def ship(watched: Watched) -> None:
        announce(f"watching {watched.cluster}/{watched.broker}")
        if ship_to is not None:
            shipper = shippers[watched.home] = ShipperChild(Path(watched.home), ship_to)
            shipper.start()

    async def let_go(watched: Watched) -> None:
        shipper = shippers.pop(watched.home, None)
        if shipper is not None:
            await shipper.stop()

    watch = ClusterWatch(system_runtime(), admin, observation, on_new=ship, on_gone=let_go)
    port = None
    if metrics is not None:
        port = MetricsPort(
            system_runtime().network,
            lambda: pages_of(watch.times, series_max=BROKERS_WATCHED_MAX),
            names=metrics.names,
        )
        await port.start(metrics.host, metrics.port)
        ready += f" metrics=http://{port.address}/metrics"
    announce(ready)
    try:
        await serve([watch], stopping)
    finally:
        if port is not None:
            await port.stop()
        for shipper in shippers.values():
            await shipper.stop()


async def retire_brokers(
    admin: Admin, observation: Observation, names: Sequence[str], ship_to: str | None
) -> None:
    """Tell that brokers are gone for good: here, or by the observer that runs."""
    try:
        info = await admin.cluster.info()
        listed = {name for (_, name) in masters_of(info, observation)}
    except TidemarkError as error:
        _log.warning("no name server says whether they are gone: %s", error)
        listed = set()
    runtime = system_runtime()
    brokers = retired_brokers(runtime, observation, names, listed)
    folders = await retire_for_good(runtime, admin, observation, brokers)
    await admin.close()
    for folder in folders or ():
        if ship_to is not None:
            await ShipperChild(Path(folder), ship_to).stop()
    how = "" if folders is not None else " by the observer that runs, within ten seconds"
    announce(f"{', '.join(names)}: gone for good, reported{how}")


async def refuse_strangers(observation: Observation, info: ClusterInfo, lake: str) -> None:
    """Raise ConfigError when the lake has another cluster of that name. Who has watched it from
    this home before watches on, wherever it is now.
    """
    own = {
        one.cluster for one in known_brokers(SystemDisk(), observation.home, observation.observer)
    }
    masters = masters_of(info, observation)
    for name in sorted({cluster for cluster, _ in masters} - own):
        there = {broker: at for (cluster, broker), at in masters.items() if cluster == name}
        other = stranger(await known_observers(lake, name), observation.name_servers, there)
        if other is None:
            continue
        raise ConfigError(
            "as" if observation.called == name else "cluster",
            name,
            f"the name of one cluster: lake {lake} has another one of that name, which "
            f"{other.emitter} found by {other.name_servers or 'other name servers'} at "
            f"{other.address}. Give this one a name of its own with --as NAME; if that one has "
            f"moved here, end it first: tidemark observe --retire {other.broker}, where it was "
            f"watched from, or tidemark lake retire {other.emitter} --lake {lake}",
        )


async def known_observers(lake: str, cluster: str) -> list[KnownInLake]:
    """What the lake knows; nothing when it cannot be asked, which is logged."""
    command = (sys.executable, "-m", "engine.telemetry.shipper.known_observers", lake, cluster)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, wrong = await process.communicate()
    if process.returncode == 0:
        return msgspec.json.decode(out, type=list[KnownInLake])
    said = wrong.decode(errors="replace").strip().rpartition("\n")[2]
    _log.warning(
        "whether lake %s knows another cluster %s cannot be found out: %s", lake, cluster, said
    )
    return []


class KnownInLake(msgspec.Struct, frozen=True):
    """As engine.telemetry.shipper.known_observers prints it."""

    emitter: str
    broker: str
    address: str
    name_servers: str


def check_names(observer: str, called: str | None) -> None:
    """Raise ConfigError for names that cannot be parts of an emitter's name and of a path."""
    if OBSERVER.fullmatch(observer) is None or observer.isdecimal() or observer in TAKEN:
        wanted = f"a word of letters, digits, '_', '.' and '-', but none of {', '.join(TAKEN)}"
        raise ConfigError("observer", observer, wanted)
    if called is not None:
        try:
            check_broker_word("cluster", called)
        except RequestRefused as error:
            raise ConfigError("as", called, f"a name: {error.remark}") from None


def period_ms_of(period_s: float, *, window_ms: int) -> int:
    """The period in ms, if a window in which queues are judged holds it twice, so that one look may
    fail: in a window without a look a queue seems to stand, and its verdict would flicker.
    """
    if not 1 <= period_s <= PERIOD_S_MAX:
        raise ConfigError("period", period_s, f"1 to {PERIOD_S_MAX} seconds")
    if 2 * period_s * SECOND_MS > window_ms:
        longer_ms = round(2 * period_s * SECOND_MS)
        raise ConfigError(
            "period",
            period_s,
            f"{window_ms / (2 * SECOND_MS):g} seconds at most, half of the window in which the "
            f"pipeline judges queues ({window_ms} ms), else verdicts would flicker; look more "
            f"often, or run the pipeline with --window-ms {longer_ms} and say so here, too",
        )
    return round(period_s * SECOND_MS)


@app.callback()
def room() -> None:
    """The observer's command."""
