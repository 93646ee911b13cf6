"""`tidemark alerts run`: runs one alerting process in the foreground until stopped.

Place in the walk: the entry point; it brings clock, chance, files, database and lake together.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from engine.foundation.errors import Faulty, MustBe
from pipelines.alerting.alerts import Alert, Notice, State, fingerprint_of
from pipelines.alerting.channels.opening import channels_of
from pipelines.alerting.channels.receivers import read_receivers
from pipelines.alerting.gold_view import Gold
from pipelines.alerting.history import Carrier, HistoryTable
from pipelines.alerting.metrics.families import Process
from pipelines.alerting.metrics.page import Page
from pipelines.alerting.metrics.port import serving
from pipelines.alerting.notification_settings import NoReceivers, TellingFile
from pipelines.alerting.objectives import ObjectivesFile
from pipelines.alerting.outbox.courier import Chances, Courier
from pipelines.alerting.outbox.outcomes import Failed, Outcome, Trouble
from pipelines.alerting.present_rows import job_rows
from pipelines.alerting.rule_files import read_rules, rule_files
from pipelines.alerting.runner import Alerting
from pipelines.alerting.sql_queries import Queries
from pipelines.database.clock import database_ms
from pipelines.database.database import Database, now_us
from pipelines.lake.lake import Lake
from pipelines.scheduler.centre.run_requests import LastLines
from pipelines.scheduler.store.troubles import troubles

TEST_RULE: Final = "ChannelTest"
SCHEDULER_TOKEN: Final = "TIDEMARK_SCHEDULER_TOKEN"  # noqa: S105 - a name, no token
"""The variable that has the token by which executors are asked for logs."""
SENDERS_MAX: Final = 100
"""Channels that block, at work at the same time: as many as there may be receivers."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where a Prometheus finds the process."""

    port: int
    """0 takes a free one."""
    host: str = "127.0.0.1"
    names: Sequence[str] = ()
    """Host names by which it may be asked."""
    queues: bool = False
    """Tell the lag of each queue as well."""


async def watch(
    lake: Lake,
    rules: Sequence[Path],
    receivers: Path | None,
    database: Database,
    *,
    for_s: float,
    metrics: Metrics | None = None,
    objectives: Path | None = None,
    ready: Callable[[str], None] = lambda _address: None,
) -> None:
    """Watch a lake until asked to stop, or for so many seconds. Raises ConfigError for files that
    are wrong at the start; later ones are reported, and what was in force stays. objectives: the
    file of what groups should keep; None: nobody has given any. metrics: None serves none; ready:
    gets the address that they are served at, empty for none.
    """
    faults = read_rules(rule_files(rules)).faults
    if faults:
        raise Faulty("rules", "; ".join(map(str, faults)))
    until = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, until.set)
    if for_s:
        loop.call_later(for_s, until.set)
    name = lake.root
    with (
        ThreadPoolExecutor(SENDERS_MAX, thread_name_prefix="channel") as threads,
        Queries() as queries,
    ):
        places = NoReceivers() if receivers is None else TellingFile(receivers, os.environ, threads)
        places.read()
        chances = Chances(now_us, random.random, lambda: secrets.token_hex(16))
        carrier = Carrier(database, name, HistoryTable(lake))
        party = Alerting(
            Gold(lake, _job_runs(database), ObjectivesFile(objectives)),
            database,
            lake=name,
            holder=f"process {os.getpid()} on {socket.gethostname()}",
            rules=lambda: rule_files(rules),
            places=places,
            courier=lambda channels: Courier(database, name, channels, chances),
            now_us=now_us,
            carry=carrier.carry,
            answering=queries.answered,
        )
        async with _served(metrics, lake, database, party) as address:
            ready(address)
            await party.run(until)


def _job_runs(database: Database) -> Callable[[int], pl.DataFrame]:
    """Runs of jobs that somebody should hear of, with the last lines of their logs."""
    lines = LastLines(database, os.environ.get(SCHEDULER_TOKEN))

    def rows(at_us: int) -> pl.DataFrame:
        now_ms = database_ms(database)
        return job_rows(lines.added(troubles(database, now_ms=now_ms), now_ms=now_ms), at_us)

    return rows


@asynccontextmanager
async def _served(
    metrics: Metrics | None, lake: Lake, database: Database, party: Alerting
) -> AsyncIterator[str]:
    """Serve the metrics of a process while the block lasts; their address."""
    if metrics is None:
        yield ""
        return
    page = Page(
        lake,
        database,
        process=lambda: Process(party.leads, party.rules_in_force, party.look_s),
        now_us=now_us,
        queues=metrics.queues,
    )
    async with serving(page.text, metrics.host, metrics.port, names=metrics.names) as port:
        shown = f"[{metrics.host}]" if ":" in metrics.host else metrics.host
        yield f"http://{shown}:{port}/metrics"


async def tried(file: Path, receiver: str) -> Outcome:
    """What comes of sending one receiver an alert that says that it is a test."""
    with ThreadPoolExecutor(1) as threads:
        channels = channels_of(read_receivers(file), os.environ, threads)
        if receiver not in channels:
            raise MustBe("receiver", receiver, f"one of {', '.join(channels)}", str(file))
        at_us = now_us()
        labels = {"cluster": "none", "group": "none"}
        alert = Alert(
            fingerprint=fingerprint_of(TEST_RULE, labels),
            rule=TEST_RULE,
            severity="info",
            owner="",
            labels=labels,
            annotations={"summary": "This is a test of the channel. Nothing is wrong."},
            figures={},
            state=State.FIRING,
            reason="",
            active_at_us=at_us,
            fired_at_us=at_us,
            resolved_at_us=None,
            last_true_us=at_us,
        )
        notice = Notice(secrets.token_hex(16), receiver, TEST_RULE, {}, (alert,), 0, at_us)
        channel = channels[receiver]
        try:
            async with asyncio.timeout(channel.timeout_s):
                return await channel.send(notice)
        except TimeoutError:
            return Failed(Trouble.UNREACHABLE, f"no answer within {channel.timeout_s:g} s")
