"""The command `tidemark observe`: a cluster that others run, watched from outside.

Place in the walk: around `engine.observer`; a shipper runs for each broker that is watched.

Invariant: as `engine.commands`: one ready line on standard output, a TidemarkError is one sentence
and exit code 1.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Annotated, Final

import typer

from engine.client.admin import admin_at
from engine.commands import NO_LAKE, announce, run_command
from engine.foreground import ShipperChild, serve
from engine.foundation.errors import ConfigError
from engine.foundation.units import SECOND_MS
from engine.observer.broker_watch import Watched
from engine.observer.cluster_watch import ClusterWatch, Observation
from engine.runtime import system_runtime
from engine.telemetry.commands import lake_address

PERIOD_S_MAX: Final = 60
"""Every mark is told each ten minutes, and must be before it is taken for gone."""
WINDOW_MS: Final = 30_000
"""In which the pipeline judges a queue, unless it was told another one."""
OBSERVER: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.command("observe")
def observe(
    namesrv: Annotated[
        str, typer.Option("--namesrv", "-n", help="Name servers, host:port, split by ';'.")
    ],
    *,
    cluster: Annotated[
        list[str] | None, typer.Option(help="Watch this cluster only; repeatable.")
    ] = None,
    lake: Annotated[
        str, typer.Option(help="Lake to ship facts to: a folder or a URI; none ships nothing.")
    ] = NO_LAKE,
    home: Annotated[Path, typer.Option(help="Folder for a spool of each broker.")] = Path(
        "var/observer"
    ),
    period: Annotated[float, typer.Option(help="Seconds from one look to the next.")] = 10.0,
    window_ms: Annotated[
        int, typer.Option(help="The window by which the pipeline judges (its --window-ms).")
    ] = WINDOW_MS,
    observer: Annotated[
        str, typer.Option(help="Name of this observer; two of one cluster need two names.")
    ] = "observer",
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
        if OBSERVER.fullmatch(observer) is None or observer.isdecimal():
            raise ConfigError("observer", observer, "a word of letters, digits, '_', '.' and '-'")
        ship_to = None if lake == NO_LAKE else lake_address(lake)
        admin = admin_at(namesrv, credentials=credentials)
        shippers: list[ShipperChild] = []

        def ship(watched: Watched) -> None:
            announce(f"watching {watched.cluster}/{watched.broker}")
            if ship_to is not None:
                shipper = ShipperChild(Path(watched.home), ship_to)
                shipper.start()
                shippers.append(shipper)

        told = Observation(frozenset(cluster or ()), observer, str(home.absolute()), period_ms)
        watch = ClusterWatch(system_runtime(), admin, told, on_new=ship)
        await admin.cluster.info()  # A wrong address is told at once.
        announce(f"ready namesrv={namesrv}")
        try:
            await serve([watch], stopping)
        finally:
            for shipper in shippers:
                await shipper.stop()

    run_command("observe", work)


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
