"""Prepares lag data from the lake for display on pages.

Invariant: nothing here reads a lake or a clock. A sum over unknowns counts what is known and says
how much is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final, cast

import polars as pl

from dashboards.formatting import (
    UNKNOWN,
    HowFarBehind,
    clock,
    count,
    duration,
    plural,
    unknown,
    visible,
)
from dashboards.theme import STATES, state_sign
from dashboards.url_state import CHECKS_OLD_AFTER, Span, topic_path
from pipelines.base.time_units import moment_at
from pipelines.base.wording import bound_of
from pipelines.lake.schemas import QUEUE
from pipelines.reading.check_results import of_each_check
from pipelines.reading.known import began_at, behind, held_to, lag_known, states_at
from pipelines.reading.moment import Moment, cluster_of, is_observer, reached_rows
from pipelines.reading.rollbacks import COSTS_NOTHING, NO_BOOTS, rollbacks
from pipelines.reading.trust import EVERY_TABLE
from pipelines.sentences import checks
from pipelines.sentences import recent_changes as words
from pipelines.sentences.figures import moment, whole
from pipelines.sentences.groups import how_far, well
from pipelines.sentences.losses import left_text
from pipelines.sentences.new_lives import NewLife
from pipelines.sentences.recent_changes import rollback
from pipelines.sentences.stalls import stands_now

Row = dict[str, Any]
LINE: Final = ("cluster", "group")
"""The subject of one line: groups of two clusters are two, whatever they are called."""
BOUNDS: Final = (bound_of("time_lag_ms"), bound_of("lag_messages"))
"""What groups are sorted by: what is unknown of some queues takes none from the top."""
RETURN_WITHIN: Final = timedelta(seconds=120)
"""Clients that join this soon after a restart came back because of it: they look for a broker each
30 s."""
_LATER: Final = ("trend_unknown_reason", "unacknowledged_since")
"""Columns that a lake of an earlier version has not."""
CHANGES_MAX: Final = 60
"""Entries of the feed; older ones are counted."""


@dataclass(frozen=True, slots=True)
class GroupLine(HowFarBehind):
    """A group as the overview lists it."""

    cluster: str
    group: str
    state: str
    reason: str
    trend: str | None
    trend_unknown_reason: str | None
    members: int | None
    queues: int
    queues_known: int
    observed_at: datetime
    judged_to: datetime | None
    """How far its worst broker has been judged."""


@dataclass(frozen=True, slots=True)
class BrokerEvent:
    """Something that happened to a broker."""

    at: datetime
    cluster: str
    broker: str
    kind: str
    """BOOT, SHUTDOWN, ROLE_CHANGE, SPOOL_LOSS, or SILENT."""
    detail: str = ""
    clean: bool | None = None
    until: datetime | None = None
    """End of a silence."""
    names_cluster: bool = False
    """Is it shown beside those of other clusters, whose brokers may be called the same?"""
    first_seen: bool = False
    """Of a BOOT: is it the first life of the broker that anybody reports?"""
    up_since: datetime | None = None
    """Of a BOOT that an observer saw: when the broker says that its life began."""

    @property
    def name(self) -> str:
        """The broker as it is called where it is shown."""
        return f"{self.cluster} / {self.broker}" if self.names_cluster else self.broker


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the feed: when, what kind, about whom, in words."""

    at: datetime
    kind: str
    """stall, risk (each also over), delivered twice, rebalance, fail-over, dead, replaced (a pulled
    message was lost, and another one has its offset), deleted unread, topic (made again), passed
    over (of one that was made again), roll-back or broker."""
    group: str | None
    text: str
    topic: str | None = None
    """The topic that the text names, when it does."""
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Quality:
    """The newest run of checks in one word, and what it rests on."""

    level: str
    """healthy, warning, degraded or unknown."""
    failing: int
    sentence: str


def group_table(
    states: pl.DataFrame,
    lag: pl.DataFrame,
    stalls: pl.DataFrame,
    moment: Moment,
) -> pl.DataFrame:
    """One row a group of a cluster, worst first: its worst state over all brokers of that cluster,
    and its lag as it is now.

    `states` and `lag` are the newest of every key; `stalls` the windows open at the moment. What an
    emitter has reported of which nothing is known any more is unknown. A group with lag that nobody
    has judged is unknown, too. `judged_to` is that of the group's worst broker.
    """
    states = states_at(states, moment)
    lag = lag_known(held_to(lag, moment), states)
    reached = pl.DataFrame(
        reached_rows(moment.reached),
        schema={"emitter": pl.String, "judged_to": pl.Datetime("us", "UTC"), "seq_to": pl.Int64},
    )
    reported = pl.concat([frame.select(*LINE, "emitter") for frame in (lag, states)]).unique()
    freshness = (
        reported.join(reached, on="emitter", how="left")
        .group_by(LINE)
        .agg(pl.col("judged_to").min())
    )
    ranks = {name: sign.rank for name, sign in STATES.items()}
    judged = states.with_columns(
        pl.col("state").replace_strict(ranks, default=ranks["UNKNOWN"]).alias("rank")
    )
    worst = (
        judged.sort("rank", "broker")
        .group_by(LINE, maintain_order=True)
        .agg(
            pl.col("state", "reason", "trend", "rank").first(),
            *(pl.col(name).first() for name in _LATER if name in judged.columns),
            pl.col("members").max(),
            pl.col("observed_at").max().alias("judged_at"),
        )
    )
    lags = lag.group_by(LINE).agg(
        *behind(),
        pl.len().cast(pl.Int64).alias("queues"),
        pl.col("observed_at").max(),
    )
    standing = stalls.group_by(LINE).agg(pl.len().cast(pl.Int64).alias("queues_not_ok"))
    unknown = ranks["UNKNOWN"]
    return (
        lags.join(worst, on=LINE, how="full", coalesce=True)
        .join(standing, on=LINE, how="left")
        .join(freshness, on=LINE, how="left")
        .with_columns(
            pl.col("state").fill_null("UNKNOWN"),
            pl.col("reason").fill_null("It is not judged yet."),
            pl.col("rank").fill_null(unknown),
            pl.col("queues", "queues_known", "queues_not_ok").fill_null(0),
            pl.coalesce("observed_at", "judged_at").alias("observed_at"),
        )
        .sort(
            ["rank", *BOUNDS, "group", "cluster"],
            descending=[False, True, True, False, False],
            nulls_last=True,
        )
    )


def chosen_groups(groups: pl.DataFrame, part: str, order: str) -> pl.DataFrame:
    """The groups whose name holds a text, in the order that was asked for."""
    found = groups
    if part:
        name = pl.col("group").str.to_lowercase()
        found = groups.filter(name.str.contains(part.lower(), literal=True))
    column = {"name": "group", "time": BOUNDS[0], "messages": BOUNDS[1]}.get(order, order)
    if order == "worst":
        return found
    return found.sort(column, descending=order != "name", nulls_last=True, maintain_order=True)


def page_of(groups: pl.DataFrame, page: int, size: int) -> pl.DataFrame:
    """The groups of one page; beyond the last it is the last."""
    last = max(1, -(-groups.height // size))
    return groups.slice((min(page, last) - 1) * size, size)


def group_lines(groups: pl.DataFrame, stalls: pl.DataFrame) -> list[GroupLine]:
    """Rows of `group_table` in words; a group with open windows is as they are now."""
    standing: dict[tuple[str, str], list[Row]] = {}
    for row in stalls.sort("stood_ms", descending=True).iter_rows(named=True):
        standing.setdefault((row["cluster"], row["group"]), []).append(row)
    return [
        _line(row, standing.get((row["cluster"], row["group"]), []))
        for row in groups.iter_rows(named=True)
    ]


def _line(row: Row, standing: Sequence[Row]) -> GroupLine:
    reason = row["reason"]
    if standing and row["rank"] < STATES["UNKNOWN"].rank:
        worst = min(standing, key=lambda one: state_sign(one["rule"]).rank)
        rest = f"{len(standing):,} of its {plural(row['queues'], 'queue')} are not OK"
        reason = whole(stands_now(worst), rest if len(standing) > 1 else "")
    elif row["state"] == "OK" and row[BOUNDS[1]] is not None:
        reason = well(row["group"], how_far({**row, "unfinished_messages": None}))
    elif row["judged_at"] is not None and row["state"] != "OK":
        reason = whole(reason, f"seen at {moment(row['judged_at'])}")
    return GroupLine(
        cluster=row["cluster"],
        group=row["group"],
        state=row["state"],
        reason=reason,
        lag_messages=row["lag_messages"],
        lag_at_least_messages=row["lag_at_least_messages"],
        time_lag_ms=row["time_lag_ms"],
        time_lag_at_least_ms=row["time_lag_at_least_ms"],
        trend=row["trend"],
        trend_unknown_reason=row.get("trend_unknown_reason"),
        members=row["members"],
        queues=row["queues"],
        queues_known=row["queues_known"],
        observed_at=row["observed_at"],
        judged_to=row["judged_to"],
    )


def overlapping(windows: pl.DataFrame, span: Span) -> pl.DataFrame:
    """Intervals that have a moment in common with the range."""
    ended = pl.col("closed_at").is_not_null() & (pl.col("closed_at") < span.start)
    return windows.filter((pl.col("opened_at") <= span.end) & ~ended)


def open_at_end(windows: pl.DataFrame, span: Span) -> pl.DataFrame:
    """Intervals that had begun and not ended when the range ends."""
    running = pl.col("closed_at").is_null() | (pl.col("closed_at") > span.end)
    return windows.filter((pl.col("opened_at") <= span.end) & running)


def of_group(rows: pl.DataFrame, group: str) -> pl.DataFrame:
    """Rows of one group."""
    return rows.filter(pl.col("group") == group)


def quality(
    results: pl.DataFrame, tables: Sequence[str] = (), *, now: datetime | None = None
) -> Quality:
    """What the checks say of the tables that govern a number; of all tables when none is named:
    each by what it last found, a critical failure for as long as it counts. When the newest run is
    too old at `now`, they say nothing about it."""
    if results.is_empty():
        return Quality("unknown", 0, checks.NEVER_RAN)
    ran_at = cast("datetime | None", results["started_at"].max())
    if now is not None and ran_at is not None and now - ran_at >= CHECKS_OLD_AFTER:
        age_ms = (now - ran_at).total_seconds() * 1000
        return Quality("unknown", 0, checks.too_old(age_ms))
    found = of_each_check(results)
    if tables:
        found = found.filter(pl.col("table").is_in([*tables, EVERY_TABLE]))
    judged = found.filter(pl.col("checked_rows") > 0)
    failing = judged.filter(~pl.col("success") & (pl.col("severity") != "INFO"))
    if judged.is_empty():
        return Quality("unknown", 0, checks.NOTHING_TO_CHECK)
    if failing.is_empty():
        return Quality("healthy", 0, checks.hold(judged.height, ran_at))
    critical = (failing["severity"] == "CRITICAL").any()
    sentence = checks.fail(failing["expectation"].to_list(), judged.height)
    return Quality("degraded" if critical else "warning", failing.height, sentence)


def changes(
    *,
    stalls: pl.DataFrame,
    risks: pl.DataFrame,
    rebalances: pl.DataFrame,
    dead_letters: pl.DataFrame,
    span: Span,
    brokers: Sequence[BrokerEvent] = (),
    together: pl.DataFrame | None = None,
    replaced: pl.DataFrame | None = None,
    unread: pl.DataFrame | None = None,
    lives: Sequence[NewLife] = (),
    left: pl.DataFrame | None = None,
    fail_overs: pl.DataFrame | None = None,
) -> list[Change]:
    """What changed in the range, newest first; a broker's restart takes with it the clients that
    came back to it, and its roll-back (`together`) the windows of risk of all groups that went
    back with it."""
    returned, rest = _returned(rebalances, brokers)
    together = rollbacks(risks, NO_BOOTS) if together is None else together
    ids = together["window_ids"].explode().implode()
    # That a broker died is listed once, not again for each group that it does nothing to.
    alone = risks.filter(~pl.col("window_id").is_in(ids) & ~COSTS_NOTHING)
    found = [
        *_interval_changes(stalls, "stall"),
        *_interval_changes(alone, "risk"),
        *(
            Change(row["began_at"], "roll-back", None, rollback(row))
            for row in together.iter_rows(named=True)
        ),
        *(
            Change(
                row["observed_at"],
                "rebalance",
                row["group"],
                words.of_members(row),
                cluster=row["cluster"],
            )
            for row in rest
        ),
        *(
            Change(
                row["observed_at"],
                "dead",
                row["group"],
                words.dead_letter(row),
                row["origin_topic"],
                row["cluster"],
            )
            for row in dead_letters.iter_rows(named=True)
        ),
        *_fail_overs(fail_overs, brokers),
        *_losses("replaced", replaced),
        *_losses("deleted unread", unread),
        *_lives(lives),
        *_left(left),
        *(
            Change(
                event.at,
                "broker",
                None,
                broker_text(event, returned.get(event, [])),
                cluster=event.cluster,
            )
            for event in brokers
        ),
    ]
    inside = [change for change in found if span.start <= change.at <= span.end]
    return sorted(inside, key=lambda change: (change.at, change.kind), reverse=True)


def _fail_overs(found: pl.DataFrame | None, brokers: Sequence[BrokerEvent]) -> Iterator[Change]:
    """Changes of the leader of a broker, each with what may come to groups again."""
    names_cluster = any(event.names_cluster for event in brokers)
    rows = [] if found is None else found.rows(named=True)
    for _, same in groupby(rows, key=lambda row: (row["led_at"], row["emitter"])):
        groups = list(same)
        text = words.fail_over(groups, names_cluster=names_cluster)
        at, cluster = groups[0]["led_at"], groups[0]["cluster"]
        yield Change(at, "fail-over", None, text, cluster=cluster)


def _losses(kind: str, losses: pl.DataFrame | None) -> Iterator[Change]:
    """Messages that a group lost, in the words of their rows."""
    for row in (pl.DataFrame() if losses is None else losses).iter_rows(named=True):
        what = (row["group"], row["evidence"])
        yield Change(row["observed_at"], kind, *what, cluster=row["cluster"])


def _left(left: pl.DataFrame | None) -> Iterator[Change]:
    """Topics that groups have left."""
    for row in (pl.DataFrame() if left is None else left).iter_rows(named=True):
        text = left_text(row).removeprefix(f"{row['group']} ")
        yield Change(row["event_time"], "topic", row["group"], text, cluster=row["cluster"])


def _lives(lives: Sequence[NewLife]) -> Iterator[Change]:
    """Topics that were made again."""
    for life in lives:
        kind = "passed over" if life.is_loss else "topic"
        yield Change(life.at, kind, None, life.text, cluster=life.cluster)


def _returned(
    rebalances: pl.DataFrame, brokers: Sequence[BrokerEvent]
) -> tuple[dict[BrokerEvent, list[Row]], list[Row]]:
    """(changes that a restart explains, by restart; all the others)."""
    boots = [event for event in brokers if event.kind == "BOOT" and not event.first_seen]
    folded: dict[BrokerEvent, list[Row]] = {}
    rest = []
    for row in rebalances.iter_rows(named=True):
        cause = next(
            (
                event
                for event in boots
                if (row["cluster"], row["broker"]) == (event.cluster, event.broker)
                and row["kind"] == "JOINED"
                and timedelta(0) <= row["observed_at"] - event.at <= RETURN_WITHIN
            ),
            None,
        )
        if cause is None:
            rest.append(row)
        else:
            folded.setdefault(cause, []).append(row)
    return folded, rest


def begun_in(silences: pl.DataFrame, span: Span) -> pl.DataFrame:
    """The silences that began in the range, of those that reach into its look-back."""
    return silences.filter(pl.col("since") >= span.start)


def broker_events(
    lifecycle: pl.DataFrame, silences: pl.DataFrame, *, names_clusters: bool = False
) -> list[BrokerEvent]:
    """Restarts, role changes, stops and silences of brokers, each listed once, oldest first."""
    reported = [
        BrokerEvent(
            row["event_time"],
            row["cluster"],
            row["broker"],
            row["kind"],
            "" if is_seen_boot(row) else row["detail"] or "",
            clean=row["clean"],
            names_cluster=names_clusters,
            first_seen=row["first_seen"] is True,
            up_since=moment_at(row["broker_epoch"]) if is_seen_boot(row) else None,
        )
        for row in lifecycle.iter_rows(named=True)
    ]
    silent = [
        BrokerEvent(
            row["since"],
            cluster_of(row["emitter"]),
            _broker_of(row["emitter"]),
            words.SILENT,
            until=row["until"],
            names_cluster=names_clusters,
        )
        for row in silences.iter_rows(named=True)
    ]
    unique = {_identity(event): event for event in (*reported, *silent)}
    return [unique[identity] for identity in sorted(unique)]


def is_seen_boot(row: Row) -> bool:
    """Is a row of lifecycle a boot that an observer saw from outside?"""
    return bool(row["kind"] == "BOOT" and is_observer(row["emitter"]))


def _identity(event: BrokerEvent) -> tuple[datetime, str, str, str]:
    return event.at, event.cluster, event.broker, event.kind


def _broker_of(emitter: str) -> str:
    """The broker's name in an emitter's: cluster/broker/id."""
    parts = emitter.split("/")
    return parts[1] if len(parts) == 3 else emitter


def broker_text(event: BrokerEvent, returned: Sequence[Row] = ()) -> str:
    """What happened to a broker, and who came back to it."""
    if event.kind == words.SILENT:
        return words.broker_silent(event.name, event.at, event.until)
    if event.kind != "BOOT":
        return words.broker_event(event.name, event.kind, event.detail)
    return words.broker_booted(
        event.name,
        event.at,
        first_seen=event.first_seen,
        up_since=event.up_since,
        clean=event.clean,
        detail=event.detail,
        returned=returned,
    )


def _interval_changes(windows: pl.DataFrame, kind: str) -> list[Change]:
    """Beginnings and ends; queues of one group that share moment and cause are one entry."""
    texts = words.stalls_began if kind == "stall" else words.risks_began
    begun: dict[tuple[Any, ...], list[Row]] = {}
    ended: dict[tuple[Any, ...], list[Row]] = {}
    for row in windows.iter_rows(named=True):
        cause = row["rule"] if kind == "stall" else words.cause(row)
        what = (row["group"], row["topic"], row["cluster"], cause)
        begun.setdefault((row["opened_at"], *what), []).append(row)
        if row["closed_at"] is not None:
            result = "" if kind == "stall" else row["outcome"]
            ended.setdefault((row["closed_at"], *what, result), []).append(row)
    return [
        *(
            Change(min(map(began_at, rows)), kind, key[1], texts(rows), key[2], key[3])
            for key, rows in begun.items()
        ),
        *(
            Change(key[0], _end_kind(kind, rows), key[1], _over(rows, kind), key[2], key[3])
            for key, rows in ended.items()
        ),
    ]


def _end_kind(kind: str, rows: Sequence[Row]) -> str:
    """A risk that came true is no good news, though it is over."""
    came_true = kind == "risk" and rows[0]["outcome"] == "CONFIRMED"
    return "delivered twice" if came_true else f"{kind} over"


def _over(rows: Sequence[Row], kind: str) -> str:
    if kind != "stall":
        return words.risks_ended(rows)
    first = rows[0]
    return words.stalls_ended(rows, (first["closed_at"] - began_at(first)).total_seconds() * 1000)


def origin_text(row: Row) -> str:
    """Where a failed message came from, the same on every page: `orders queue 1 offset 123`."""
    if not row["origin_topic"]:
        return "unknown"
    queue, offset = row["origin_queue_id"], row["origin_offset"]
    said = visible(row["origin_topic"])
    said += " queue unknown" if queue is None else f" queue {queue}"
    return said + (" offset unknown" if offset is None else f" offset {offset}")


def queue_rows(lag: pl.DataFrame, stalls: pl.DataFrame) -> list[Row]:
    """Rows of the queue table: offsets as exact strings, unknowns with their reason."""
    rules = {
        tuple(row[name] for name in QUEUE): row["rule"] for row in stalls.iter_rows(named=True)
    }
    rows = []
    for row in lag.iter_rows(named=True):
        known = row["lag_messages"] is not None
        rule = rules.get(tuple(row[name] for name in QUEUE))
        sign = state_sign(rule or ("OK" if known else row["unknown_reason"]))
        rows.append(
            {
                "state": f"{sign.sign} {sign.word}",
                "topic": visible(row["topic"]),
                "topic_path": topic_path(row["topic"]),
                "queue": f"{row['broker']} / {row['queue_id']}",
                "committed": _exact(row["committed"]),
                "max_offset": str(row["max_offset"]),
                "pulled": _exact(row["pulled"]),
                "lag": row["lag_messages"],
                "lag_text": count(row["lag_messages"]),
                "time_lag": row["time_lag_ms"],
                "time_lag_text": _time_lag(row),
                "provenance": _provenance(row),
                "owner": visible(row["last_puller"] or "nobody has pulled"),
                "last_commit": clock(row["last_commit_time"])
                if row["last_commit_time"]
                else "never",
                "rank": sign.rank,
            }
        )
    return sorted(rows, key=lambda row: (row["rank"], -(row["time_lag"] or 0)))


def _exact(offset: int | None) -> str:
    """Every digit: a browser's numbers end at 2**53."""
    return str(offset) if offset is not None else UNKNOWN


def _provenance(row: Row) -> str:
    """How the numbers were come by, or why there are none."""
    if row["lag_messages"] is None or row["time_lag_ms"] is None:
        return unknown(row["unknown_reason"])
    return str(row["provenance"]).lower()


def _time_lag(row: Row) -> str:
    text = duration(row["time_lag_ms"])
    error = row["time_lag_error_ms"]
    return f"{text} ± {duration(error)}" if error else text
