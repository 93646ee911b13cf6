"""`tidemark dash`: serves the dashboard, or explains in one sentence why it cannot."""

from __future__ import annotations

import ipaddress
import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from engine.foundation.errors import ConfigError
from pipelines.lake.lake import Lake

if TYPE_CHECKING:
    from dashboards.models.alert_lines import AlertSource

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

BACKLOG: Final = 128
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        envvar="TIDEMARK_DATABASE",
        help="Where `tidemark alerts` and `tidemark jobs` store their state, as given "
        "to them; else the file in ~/.tidemark, or in the folder that TIDEMARK_HOME names.",
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        envvar="TIDEMARK_SCHEDULER_TOKEN",
        help="What executors and centre show each other: by it executors are asked for logs "
        "of runs, and to end runs.",
    ),
]
NamesrvOption = Annotated[
    str | None,
    typer.Option(
        help="Name servers, split by ';': topic pages may then ask this cluster, reading only, "
        "where a message is stored and what clients traced. Without it nobody is asked."
    ),
]
ReportsOption = Annotated[
    Path | None,
    typer.Option(help="Folder of the reports' files, when `reports run --folder` named one."),
]
ReceiversOption = Annotated[
    Path | None,
    typer.Option(
        help="File of receivers, as `tidemark alerts run` takes it: who may change the jobs of "
        "`tidemark` has reports sent to them."
    ),
]
PagesOption = Annotated[
    str, typer.Option(help="Address of this dashboard, for links in what is sent.")
]


@app.command("dash")
def dash(
    lake: Annotated[str, typer.Option(help="Lake: a folder, or a URI such as s3://bucket/lake.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.")] = 8050,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Host name that browsers may use; repeat for more.")
    ] = None,
    *,
    namesrv: NamesrvOption = None,
    database: DatabaseOption = None,
    rules: Annotated[
        list[Path] | None,
        typer.Option(help="Rules that the page of alerts lists; else those shipped."),
    ] = None,
    token: TokenOption = None,
    reports: ReportsOption = None,
    receivers: ReceiversOption = None,
    pages: PagesOption = "",
    credentials: Annotated[
        str | None, typer.Option(help="File with the account and TLS for that cluster.")
    ] = None,
    open_to_network: Annotated[
        bool,
        typer.Option(
            "--open-to-network",
            help="Permit an address others can reach: only pages of jobs ask for a sign-in. With "
            "--namesrv they all read traces, by the account of --credentials.",
        ),
    ] = False,
) -> None:
    """Serve the dashboard until SIGTERM or Ctrl-C."""
    place = Lake.at(lake)
    if credentials is not None and namesrv is None:
        raise ConfigError("credentials", credentials, "an option beside --namesrv HOST:PORT")
    if not is_loopback(host) and not open_to_network:
        raise ConfigError(
            "host",
            host,
            "a loopback address: the pages ask for no password; with --open-to-network and "
            "--allow-host NAME it is yours to guard",
        )
    # Here and not above: Dash takes a second to load, which `--help` should not.
    from dashboards.access.security import LOOPBACK_NAMES
    from dashboards.access.visitors import Visitors
    from dashboards.reads.cluster import Cluster
    from dashboards.reads.job_database import JobDatabase
    from dashboards.reads.report_shelf import Sending
    from dashboards.web.app import build, serve

    cluster = Cluster(namesrv, credentials=credentials)
    listener = listen(host, port)
    hosts = {*LOOPBACK_NAMES, host, *(allow_host or ())}
    number = listener.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    alerts = alerts_of(place, database, rules or ())
    visitors = Visitors(JobDatabase(database), is_local=is_loopback(host))
    application = build(
        place,
        hosts=hosts,
        cluster=cluster,
        alerts=alerts,
        visitors=visitors,
        executor_token=token,
        reports=reports,
        sending=Sending(receivers, pages),
    )
    serve(application, listener, ready=lambda: announce(f"dash http://{shown}:{number}/"))


def alerts_of(lake: Lake, database: str | None, rules: Sequence[Path]) -> AlertSource:
    """Where the pages of a lake learn of alerts."""
    from dashboards.models.alert_lines import AlertSource
    from pipelines.alerting.board import AlertBoard, PastAlerts
    from pipelines.alerting.rule_files import RulesRead

    # An address may hold a password: then the reader of the page has to know it already.
    said = "" if database is None or "@" in database else f" --database {shlex.quote(database)}"
    board, past = AlertBoard(lake.root, database), PastAlerts(lake)
    return AlertSource(board.look, RulesRead(rules).read, past.within, board.judged, said)


def announce(line: str) -> None:
    """The line a parent process waits for."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def is_loopback(host: str) -> bool:
    """Can only this machine reach the address?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ConfigError when the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        allowed = f"an address and port free on this machine ({reason}); --port 0 picks one"
        raise ConfigError("host:port", f"{host}:{port}", allowed) from error
    return listener
