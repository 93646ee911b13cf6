"""Collects each rule set's verdicts on given groups over a past time range of a lake.

Place in the walk: ours from gold (stalled_windows by queue, group_state by group), those of others
from bronze facts, judged at ticks of the same grid → `Told`, for `scoring`. Invariant: a report of
ours is taken at the tick at which a revision was made; nothing that happened behind a tick decides
what is reported at it. Absent on purpose: notifiers; their waiting would be added to all alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.foundation.errors import ConfigError, LakeError
from engine.telemetry.tables import BY_NAME as BRONZE
from engine.telemetry.tables import Column
from pipelines.backtest.scoring import Told
from pipelines.base.settings import LOOK_BACK_US
from pipelines.base.time_units import micros
from pipelines.lake.lake import Lake, sql_moment, sql_over, sql_text
from pipelines.reading.catalogue import BY_NAME as GOLD
from pipelines.reading.moment import last_complete
from pipelines.reading.reading import equals
from pipelines.rules.burrow.over_time import BurrowRules
from pipelines.rules.from_bronze import observations_of
from pipelines.rules.observations import Kind, Observation, Queue, Ticks, Verdict
from pipelines.rules.thresholds import Thresholds

BATCH_ROWS: Final = 100_000
"""Groups are judged together until they have so many facts: some 100 MB."""
GROUP_ROWS_MAX: Final = 2_000_000
"""A group with more facts in the range is refused: all of one group's are held at a time."""

Group = tuple[str, str]
"""Cluster and group."""

_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "consume_offsets": ("group", "offset", "previous_offset", "path", "accepted"),
    "group_watermarks": ("group", "committed", "max_offset", "reports", "last_commit_time"),
    "queue_watermarks": ("max_offset",),
}
"""Bronze tables, and their columns that observations are made of, beside the common ones."""
_COMMON: Final = ("cluster", "broker", "topic", "queue_id", "event_time", "seq")


@dataclass(frozen=True, slots=True)
class Batch:
    """Groups that are judged together."""

    groups: tuple[Group, ...]
    topics: tuple[str, ...]

    @property
    def condition(self) -> str:
        """SQL: rows of these groups."""
        by_cluster: dict[str, list[str]] = {}
        for cluster, group in self.groups:
            by_cluster.setdefault(cluster, []).append(sql_text(group))
        parts = [
            f'({equals("cluster", cluster)} AND "group" IN ({", ".join(names)}))'
            for cluster, names in by_cluster.items()
        ]
        return f"({' OR '.join(parts) or 'false'})"


def batches_of(
    lake: Lake, begin_us: int, end_us: int, *, rows_max: int = BATCH_ROWS
) -> list[Batch]:
    """The groups that facts of a range speak of, in batches of at most `rows_max`, or of one group.

    ConfigError for a group with more than GROUP_ROWS_MAX facts.
    """
    counts: dict[Group, int] = {}
    topics: dict[Group, set[str]] = {}
    for table in ("consume_offsets", "group_watermarks"):
        for cluster, group, topic, count in _counts(lake, table, begin_us, end_us):
            key = (cluster, group)
            counts[key] = counts.get(key, 0) + count
            topics.setdefault(key, set()).add(topic)
    for (_, group), count in counts.items():
        if count > GROUP_ROWS_MAX:
            raise ConfigError(
                "--from, --to",
                f"{count:,} facts of {group}",
                f"a range with at most {GROUP_ROWS_MAX:,} facts of a group: try a shorter one",
            )
    found: list[Batch] = []
    taken: list[Group] = []
    for key in sorted(counts):
        if taken and sum(counts[one] for one in taken) + counts[key] > rows_max:
            found.append(_batch(taken, topics))
            taken = []
        taken.append(key)
    return [*found, _batch(taken, topics)] if taken else found


def verdicts_of_others(
    lake: Lake,
    batch: Batch,
    rules: Mapping[str, BurrowRules | Thresholds],
    ticks: Ticks,
    *,
    facts_from_us: int,
) -> dict[str, list[Told]]:
    """What rule sets of others report of a batch, by the names they are given with."""
    if not rules:
        return {}
    during = (facts_from_us, ticks.end_us)
    of_topics = f"topic IN ({', '.join(sql_text(one) for one in batch.topics)})"
    wanted = dict.fromkeys(_FACTS, batch.condition) | {"queue_watermarks": of_topics}
    facts = {name: _facts(lake, name, during, wanted[name]) for name in _FACTS}
    observed = observations_of(**facts)
    committed = _first_commits(facts["group_watermarks"])
    found: dict[str, list[Told]] = {}
    for name, rule in rules.items():
        if isinstance(rule, Thresholds):
            said = {
                queue: rule.judge([*committed.get(queue, ()), *ones], ticks)
                for queue, ones in observed.items()
            }
        else:
            said = {}
            for queues in _by_group(observed).values():
                said.update(rule.judge_group(queues, ticks).queues)
        found[name] = [one for queue, verdicts in said.items() for one in _bad(queue, verdicts)]
    return found


def verdicts_of_ours(gold: Lake, batch: Batch, begin_us: int, end_us: int) -> list[Told]:
    """What gold reports of a batch, from a look back before the range on, up to its end."""
    moment = last_complete(gold)
    if moment is None:
        raise LakeError(f"no cycle of {gold.root} is complete yet: there is no gold to look at")
    windows = GOLD["stalled_windows"]
    sql = (
        'SELECT cluster, broker, "group", topic, queue_id, min(observed_at) AS begun,'  # noqa: S608
        " max(CASE WHEN state = 'CLOSED' THEN observed_at END) AS ended FROM windows"
        f" WHERE {moment.condition(windows)} AND observed_at <= {sql_moment(end_us)}"
        f' AND {batch.condition} GROUP BY cluster, broker, "group", topic, queue_id, window_id'
    )
    address = gold.gold("stalled_windows")
    found = [
        Told(
            micros(row["begun"]),
            None if row["ended"] is None else micros(row["ended"]),
            row["cluster"],
            row["group"],
            row["topic"],
            row["broker"],
            row["queue_id"],
        )
        for row in sql_over({"windows": gold.table(address)}, sql, what=address).to_pylist()
    ]
    return [*found, *_group_states(gold, batch, begin_us, end_us)]


def judged_to_us(gold: Lake) -> int | None:
    """Up to when a lake's gold reports anything; None without a complete cycle."""
    moment = last_complete(gold)
    judged_to = None if moment is None else moment.judged_to
    return None if judged_to is None else micros(judged_to)


def _group_states(gold: Lake, batch: Batch, begin_us: int, end_us: int) -> Iterator[Told]:
    """Times in which a group has a queue that is not OK, or acknowledges nothing."""
    table, moment = GOLD["group_state"], last_complete(gold)
    assert moment is not None
    names = (
        *("observed_at", "cluster", "broker", "group", "queues_not_ok", "unacknowledged_since"),
        "seq",
    )
    since_us = begin_us - LOOK_BACK_US
    wanted = (
        f"{moment.condition(table)} AND observed_at >= {sql_moment(since_us)}"
        f" AND observed_at <= {sql_moment(end_us)} AND {batch.condition}"
    )
    columns = [column for column in table.columns if column.name in names]
    rows = gold.rows(gold.gold("group_state"), wanted, columns)
    open_since: dict[tuple[str, str, str], int] = {}
    for row in rows.sort_by([("observed_at", "ascending"), ("seq", "ascending")]).to_pylist():
        key = (row["cluster"], row["broker"], row["group"])
        at_us = micros(row["observed_at"])
        if row["queues_not_ok"] or row["unacknowledged_since"] is not None:
            open_since.setdefault(key, at_us)
        elif key in open_since:
            yield Told(open_since.pop(key), at_us, key[0], key[2], broker=key[1])
    for (cluster, broker, group), since in open_since.items():
        yield Told(since, None, cluster, group, broker=broker)


def _counts(lake: Lake, table: str, begin_us: int, end_us: int) -> Iterator[tuple[Any, ...]]:
    address = lake.bronze(table)
    if not lake.exists(address):
        return
    sql = (
        f'SELECT cluster, "group", topic, count(*) AS facts FROM counted'  # noqa: S608
        f' WHERE {_during((begin_us, end_us))} GROUP BY cluster, "group", topic'
    )
    for row in sql_over({"counted": lake.table(address)}, sql, what=address).to_pylist():
        yield row["cluster"], row["group"], row["topic"], row["facts"]


def _facts(lake: Lake, table: str, during: tuple[int, int], condition: str) -> list[dict[str, Any]]:
    """Rows of a bronze table with what observations are made of, moments as µs."""
    address = lake.bronze(table)
    if not lake.exists(address):
        return []
    names = (*_COMMON, *_FACTS[table])
    columns: list[Column] = [one for one in BRONZE[table].columns if one.name in names]
    rows = lake.rows(address, f"{_during(during)} AND {condition}", columns)
    if rows.num_rows > GROUP_ROWS_MAX:
        raise ConfigError(
            "--from, --to",
            f"{rows.num_rows:,} rows of {table}",
            f"a range with at most {GROUP_ROWS_MAX:,} of them for a group: try a shorter one",
        )
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(place, field.name, pc.cast(rows[field.name], pa.int64()))
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


def _during(during: tuple[int, int]) -> str:
    begin, end = (sql_moment(one) for one in during)
    dates = f"event_date >= CAST({begin} AS DATE) AND event_date <= CAST({end} AS DATE)"
    return f"event_time >= {begin} AND event_time <= {end} AND {dates}"


def _batch(groups: Sequence[Group], topics: Mapping[Group, set[str]]) -> Batch:
    named = {topic for group in groups for topic in topics[group]}
    return Batch(tuple(groups), tuple(sorted(named)))


def _first_commits(rows: Iterable[Mapping[str, Any]]) -> dict[Queue, list[Observation]]:
    """Where each group stood when it was first reported in the range: a commit from long before it,
    which whoever polls offsets knows. Burrow sees commits alone.
    """
    first: dict[Queue, Mapping[str, Any]] = {}
    for row in rows:
        queue = Queue(row["cluster"], row["group"], row["topic"], row["broker"], row["queue_id"])
        known = first.get(queue)
        if known is None or (row["event_time"], row["seq"]) < (known["event_time"], known["seq"]):
            first[queue] = row
    return {
        queue: [Observation(row["event_time"], row["seq"], Kind.COMMIT, row["committed"])]
        for queue, row in first.items()
        if row["committed"] is not None
    }


def _by_group(
    observed: Mapping[Queue, Sequence[Observation]],
) -> dict[Group, dict[Queue, Sequence[Observation]]]:
    found: dict[Group, dict[Queue, Sequence[Observation]]] = {}
    for queue, ones in observed.items():
        found.setdefault((queue.cluster, queue.group), {})[queue] = ones
    return found


def _bad(queue: Queue, verdicts: Iterable[Verdict]) -> Iterator[Told]:
    """Times in which a queue is bad; verdicts that follow each other are one."""
    begin_us: int | None = None
    end_us: int | None = None
    for one in verdicts:
        if one.is_bad:
            begin_us, end_us = one.begin_us if begin_us is None else begin_us, one.end_us
        elif begin_us is not None:
            yield _of_queue(queue, begin_us, end_us)
            begin_us = None
    if begin_us is not None:
        yield _of_queue(queue, begin_us, end_us)


def _of_queue(queue: Queue, begin_us: int, end_us: int | None) -> Told:
    place = (queue.cluster, queue.group, queue.topic, queue.broker, queue.queue_id)
    return Told(begin_us, end_us, *place)
