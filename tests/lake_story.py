"""Numbers the facts and gold rows of a story and writes them as a lake.

Bronze rows get gapless numbers in the order of their time; a gold row names the fact it rests on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from engine.telemetry.tables import BY_NAME as BRONZE_TABLES
from engine.telemetry.tables import Column
from pipelines.cycles.cuts import Cut
from pipelines.cycles.plan import Plans
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema
from pipelines.reading import catalogue

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
LENGTH_S = 900
END = START + timedelta(seconds=LENGTH_S)
"""Data time of the newest row."""

CLUSTER, BROKER = "DemoCluster", "broker-a"
EMITTER = f"{CLUSTER}/{BROKER}/0"
SETTINGS = "{}"
"""Of the run whose marks a story's lake has."""
RESTART, BACK = 650, 655
"""The broker is down from one to the other."""


@dataclass(frozen=True)
class Cast:
    """Names on stage; hostile ones prove that pages show text as text."""

    billing: str = "billing"
    shipping: str = "shipping"
    ledger: str = "ledger"
    message_id: str = "7F0000010A2B18B4AAC2166C0D4E0007"
    reason: str = "reconsume times exhausted"
    replica: str = "10.0.0.32:10912"


@dataclass
class Fact:
    """One bronze row before it has its seq."""

    at_s: float
    table: str
    values: dict[str, Any]
    seq: int = 0


@dataclass
class Story:
    """Facts and answers as they come; `write` numbers the facts and fills both folders."""

    cast: Cast
    facts: list[Fact] = field(default_factory=list)
    gold: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def fact(self, at_s: float, table: str, **values: Any) -> Fact:
        self.facts.append(Fact(at_s, table, values))
        return self.facts[-1]

    def answer(self, table: str, at_s: float, fact: Fact | None, **values: Any) -> None:
        common = {
            "observed_at": at(at_s),
            "observed_date": at(at_s).date(),
            "cluster": CLUSTER,
            "broker": BROKER,
            "emitter": EMITTER,
        }
        self.gold.setdefault(table, []).append({**common, **values, "seq": fact})

    def window(self, table: str, key: str, span: tuple[float, float | None], **values: Any) -> None:
        """Two revisions of an interval, or one when it is still open; the fact is the newest."""
        opened, closed = span
        fact = values.pop("fact")
        window_id = hashlib.sha256(f"{table}/{key}/{opened}".encode()).hexdigest()[:16]
        last = values.pop("last", {})
        moments = [(opened, "OPEN", 1)] + ([(closed, "CLOSED", 2)] if closed is not None else [])
        for moment, state, revision in moments:
            extra = last if state == "CLOSED" or closed is None else {}
            self.answer(
                table,
                moment,
                fact,
                window_id=window_id,
                revision=revision,
                state=state,
                valid_from=at(moment),
                opened_at=at(opened),
                closed_at=at(closed) if state == "CLOSED" else None,
                **{**values, **extra},
            )


def at(second: float) -> datetime:
    """The moment `second` seconds into the story."""
    return START + timedelta(seconds=second)


def write_story(story: Story, lake: Lake) -> Lake:
    """Number the facts, then write every table in one commit each; empty gold tables exist too."""
    story.facts.sort(key=lambda fact: fact.at_s)
    for seq, fact in enumerate(story.facts, start=1):
        fact.seq = seq
    by_table: dict[str, list[dict[str, Any]]] = {}
    for fact in story.facts:
        by_table.setdefault(fact.table, []).append(_bronze_row(fact))
    by_table["shipments"] = list(_shipments(story))
    begin_run(lake)
    for name, rows in by_table.items():
        append_rows(lake.bronze(name), BRONZE_TABLES[name].columns, rows, "event_date")
    for table in catalogue.GOLD_TABLES:
        rows = story.gold.get(table.name, [])
        append_rows(lake.gold(table.name), table.columns, rows, "observed_date")
    reached = (END, max((fact.seq for fact in story.facts), default=0))
    complete_cycle(lake, {EMITTER: reached}, shipments=len(by_table["shipments"]))
    return lake


def begin_run(lake: Lake) -> None:
    """Begin the plans of a lake, before its gold."""
    Plans.open(lake, SETTINGS, gold=(), buckets=1)


def complete_cycle(
    lake: Lake, reached: dict[str, tuple[datetime, int]], *, shipments: int = 1, unused: int = 0
) -> None:
    """Say that one cycle more has taken its emitters so far (data time, seq, shipments) and that
    all its gold is there; a lake's first cycle is begun before its gold. `unused`: seqs that no
    row has.
    """
    cuts = tuple(
        Cut(emitter, 0, seq, 0, shipments, 0, int(moment.timestamp() * 1_000_000), 0, unused)
        for emitter, (moment, seq) in sorted(reached.items())
    )
    plans = Plans.open(lake, SETTINGS, gold=(), buckets=1)
    plans.finish(plans.record(cuts, {}), {})


def append_rows(
    address: str, columns: Sequence[Column], rows: Sequence[dict[str, Any]], partition: str
) -> None:
    """Append rows by name; a column that a row does not name is unknown there."""
    schema = arrow_schema(columns)
    arrays = [pa.array([_plain(row.get(one.name)) for row in rows], one.type) for one in schema]
    table = pa.Table.from_arrays(arrays, schema=schema)
    write_deltalake(address, table, mode="append", partition_by=[partition])


def _plain(value: Any) -> Any:
    return value.seq if isinstance(value, Fact) else value


def _bronze_row(fact: Fact) -> dict[str, Any]:
    booted = START - timedelta(hours=1) if fact.at_s < BACK else at(BACK - 1)
    return {
        "cluster": CLUSTER,
        "broker": BROKER,
        "broker_epoch": int(booted.timestamp()) * 1_000_000,
        "emitter": EMITTER,
        "seq": fact.seq,
        "event_time": at(fact.at_s),
        "event_date": at(fact.at_s).date(),
        **fact.values,
    }


def _shipments(story: Story) -> Iterator[dict[str, Any]]:
    """One shipment each five seconds, and the health row that judges it."""
    shipped, number = 0, 0
    for until in range(5, LENGTH_S + 5, 5):
        seqs = [fact.seq for fact in story.facts[shipped:] if fact.at_s <= until]
        if not seqs:
            continue
        number += 1
        yield {
            "cluster": CLUSTER,
            "broker": BROKER,
            "broker_epoch": int(START.timestamp()) * 1_000_000,
            "emitter": f"{EMITTER}/shipper",
            "seq": number,
            "event_time": at(until),
            "event_date": at(until).date(),
            "seq_from": seqs[0],
            "seq_to": seqs[-1],
            "event_time_to": at(until),
            "rows": [{"table": "group_watermarks", "rows": len(seqs)}],
        }
        counts = dict.fromkeys(("rows_expected", "rows_found", "rows_distinct"), len(seqs))
        story.answer("emitter_health", until, None, seq_from=seqs[0], seq_to=seqs[-1], **counts)
        shipped += len(seqs)
