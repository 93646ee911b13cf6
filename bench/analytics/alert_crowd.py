"""Benchmark `alert-crowd`: fires 10,000 alerts at once in the real alerting process.

In gold 10,000 groups are well, and `tidemark alerts run` notifies a webhook; then all groups stall.
The figures are the notices, the number of alerts in them, when the first and the last of them came
after gold was complete, and the cost of the process. Scaled, there are fewer groups.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from bench.analytics.cost import cpu_seconds
from bench.analytics.figures import Figure
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema
from pipelines.reading.catalogue import GOLD_TABLES, GROUP_STATE
from tests.integration.alerting.receiving_server import Ledger, receiving
from tests.lake_story import begin_run, complete_cycle

ALERTS = 10_000
EMITTER = "c/b/0"
PATIENCE_S = 100.0
RULES = """
[[rule]]
name = "GroupStands"
table = "group_state"
when = "state = 'STALLED'"
severity = "critical"
signals_max = 10000
no_data = "keep"
[rule.annotations]
summary = "{{ labels.group }} stands, {{ lag_messages | count }} messages wait"
"""
TELLING = """
allow_private_hosts = ["127.0.0.1"]
[[receivers]]
name = "hook"
kind = "webhook"
url = "{url}/hook"
[routing]
receiver = "hook"
group_wait = "1s"
inhibit = []
"""


@dataclass(frozen=True, slots=True)
class Crowd:
    """What was seen of it."""

    notices: int
    spoken_of: int
    """Alerts that the notices name or count."""
    first_s: float
    last_s: float
    """From the complete cycle on."""
    cpu_s: float
    memory_mib: float
    """The most that the process has had."""


def measure(folder: Path, scale: float) -> list[Figure]:
    """Notices, times, CPU and memory."""
    alerts = max(100, round(ALERTS * scale))
    seen = crowd(folder, alerts)
    what = f"{alerts:,} alerts that fire at once"
    return [
        Figure(f"{what}: notices", seen.notices, "", note=f"{seen.spoken_of:,} alerts sent"),
        Figure(
            f"{what}: from gold to the last notice",
            seen.last_s,
            "s",
            cpu_s=seen.cpu_s,
            note=f"the first after {seen.first_s:.1f} s",
        ),
        Figure(f"{what}: memory of the process at most", seen.memory_mib, "MiB"),
    ]


def crowd(folder: Path, alerts: int) -> Crowd:
    """Let so many groups stand, and see what is notified."""
    folder.mkdir(parents=True, exist_ok=True)
    lake = Lake.at(str(folder / "lake"))
    _write(lake, alerts, state="OK", number=0)
    (folder / "rules.toml").write_text(RULES, encoding="utf-8")
    with receiving() as ledger:
        (folder / "telling.toml").write_text(TELLING.format(url=ledger.url), encoding="utf-8")
        with _party(folder) as party:
            _until((folder / "home" / "tidemark.db").exists, folder)
            before_s = cpu_seconds(party.pid)
            _write(lake, alerts, state="STALLED", number=1)
            begun_s = time.monotonic()
            _until(lambda: bool(ledger.received), folder)
            first_s = time.monotonic() - begun_s
            _until(lambda: _spoken_of(ledger) >= alerts, folder)
            last_s = time.monotonic() - begun_s
            spent_s = cpu_seconds(party.pid) - before_s
            memory_mib = _peak_mib(party.pid)
        return Crowd(len(ledger.received), _spoken_of(ledger), first_s, last_s, spent_s, memory_mib)


def _spoken_of(ledger: Ledger) -> int:
    notices = [one.decoded for one in list(ledger.received)]
    return sum(len(one["alerts"]) + one["truncatedAlerts"] for one in notices)


@contextmanager
def _party(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = [str(Path(sys.prefix) / "bin" / "tidemark"), "alerts", "run"]
    words += ["--lake", str(folder / "lake"), "--rules", str(folder / "rules.toml")]
    words += ["--receivers", str(folder / "telling.toml")]
    with (folder / "log").open("wb") as log:
        home = {"TIDEMARK_HOME": str(folder / "home")}
        with subprocess.Popen(words, stdout=log, stderr=log, env=os.environ | home) as started:
            try:
                yield started
            finally:
                started.kill()


def _until(has_come: Any, folder: Path) -> None:
    ends_s = time.monotonic() + PATIENCE_S
    while not has_come():
        if time.monotonic() > ends_s:
            raise TimeoutError((folder / "log").read_text(errors="replace")[-1_000:])
        time.sleep(0.05)


def _peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"/proc/{pid}/status has no VmHWM")


def _write(lake: Lake, groups: int, *, state: str, number: int) -> None:
    """A cycle of gold in which all groups are in this state."""
    if not number:
        begin_run(lake)
        for table in GOLD_TABLES:
            empty = arrow_schema(table.columns).empty_table()
            dates = ["observed_date"] if "observed_date" in table.column_names else None
            write_deltalake(lake.gold(table.name), empty, partition_by=dates)
    at = datetime.now(UTC) + timedelta(seconds=number)
    every_row: dict[str, Any] = {
        "observed_at": at,
        "observed_date": at.date(),
        "cluster": "c",
        "broker": "b",
        "emitter": EMITTER,
        "state": state,
        "reason": "its offset stands still",
        "lag_messages": 100,
        "time_lag_ms": 90_000,
        "queues": 4,
        "queues_known": 4,
        "queues_not_ok": 4,
        "members": 2,
        "trend": "STEADY",
    }
    own: dict[str, list[Any]] = {
        "group": [f"group-{one:05}" for one in range(groups)],
        "seq": [number * groups + one for one in range(groups)],
    }
    schema = arrow_schema(GROUP_STATE.columns)
    columns = [
        pa.array(own.get(field.name, [every_row.get(field.name)] * groups), field.type)
        for field in schema
    ]
    rows = pa.Table.from_arrays(columns, schema=schema)
    address = lake.gold(GROUP_STATE.name)
    write_deltalake(address, rows, mode="append", partition_by=["observed_date"])
    complete_cycle(lake, {EMITTER: (at + timedelta(seconds=1), 2**62)})
