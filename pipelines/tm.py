"""The notebook's door to a lake: questions in the domain's words, answers that show themselves.

    from pipelines import tm
    lake = tm.connect("var/lake")
    lake.groups()                      # who is behind
    lake.lag("orders").plot()          # the dashboard's own figure
    lake.stalls("orders").df           # pandas

Place in the walk: beside the dashboard, on the same gold. `tm.lag(...)` and the others ask the lake
that was connected last, or the one that `tidemark lab` has named in TIDEMARK_LAKE.

Invariant: importing this starts no Spark and reads nothing; an answer names table and version it
was read from. Interval tables are shown as their newest revisions. Absent on purpose: writing.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import pandas as pd
import polars as pl
import pyarrow as pa

from engine.foundation.errors import ConfigError, LakeError
from pipelines.catalogue import BY_NAME
from pipelines.lake import Lake, whole_table
from pipelines.marts.mart import GoldTable

LAKE_VARIABLE: Final = "TIDEMARK_LAKE"
SHOWN_ROWS: Final = 20
_WHOLE: Final = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}
UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Result:
    """An answer: its rows, the sentence that sums them up, and where they come from."""

    verdict: str
    rows: pl.DataFrame
    table: str
    version: int
    """Delta version of the table that was read."""
    lake: LakeHandle
    group: str | None = None

    @property
    def df(self) -> Any:
        """The rows as pandas.

        Whole numbers stay whole beside unknowns: as floats, offsets above 2**53 would lose their
        last digits.
        """
        return self.rows.to_arrow().to_pandas(types_mapper=_WHOLE.get)

    def plot(self) -> Any:
        """The dashboard's figure of it: the group's timeline, or all groups over time."""
        return self.lake.timeline(self.group) if self.group else self.lake.overview()

    def __len__(self) -> int:
        return self.rows.height

    def __repr__(self) -> str:
        source = f"[{self.table} @ version {self.version}, {self.rows.height} rows]"
        return f"{self.verdict}\n{self.rows.head(SHOWN_ROWS)}\n{source}"

    def _repr_html_(self) -> str:
        table = self.df.head(SHOWN_ROWS).to_html(index=False, notebook=True, na_rep="unknown")
        source = f"{self.table} @ version {self.version}, {self.rows.height} rows"
        return f"<p><strong>{_escaped(self.verdict)}</strong></p>{table}<p>{source}</p>"


@dataclass(frozen=True, slots=True)
class LakeHandle:
    """A connected lake; every question is a method."""

    lake: Lake
    _versions: dict[str, int] = field(default_factory=dict, repr=False)

    def groups(self, state: str | None = None) -> Result:
        """The newest state of every group, the worst time lag first; `state` keeps one state."""
        rows = _newest(self._read("group_state"), ["cluster", "broker", "group"])
        if state is not None:
            rows = rows.filter(pl.col("state") == state)
        rows = rows.sort("time_lag_ms", descending=True, nulls_last=True)
        bad = rows.filter(~pl.col("state").is_in(["OK", "BROADCAST"]))
        worst = "; the worst: " + bad["reason"][0] if bad.height else ""
        verdict = f"{bad.height} of {rows.height} groups are not OK{worst}"
        return self._result(verdict, rows, "group_state")

    def lag(
        self,
        group: str,
        *,
        topic: str | None = None,
        queue: int | None = None,
        since: str | None = None,
    ) -> Result:
        """Lag of a group; `since` like "90s", "15m", "6h", counted back from its newest row."""
        rows = self._of(group, "consumer_lag", topic=topic, queue=queue, since=since)
        newest = _newest(rows, ["broker", "topic", "queue_id"])
        known = newest.filter(pl.col("lag_messages").is_not_null())
        behind, late_ms = known["lag_messages"].sum(), newest["time_lag_ms"].max()
        late = "unknown" if late_ms is None else f"{int(str(late_ms)) / 1000:.1f} s"
        verdict = (
            f"{group} is {behind} messages behind on {known.height} of {newest.height} queues, "
            f"at most {late}"
        )
        return self._result(verdict, rows, "consumer_lag", group)

    def stalls(self, group: str | None = None) -> Result:
        """Intervals in which consumption was not OK."""
        rows = self._intervals("stalled_windows", group)
        still = rows.filter(pl.col("state") == "OPEN")
        newest = "; the newest: " + rows["evidence"][-1] if rows.height else ""
        verdict = f"{rows.height} stalled windows, {still.height} still open{newest}"
        return self._result(verdict, rows, "stalled_windows", group)

    def duplicates(self, group: str | None = None) -> Result:
        """Intervals in which messages were at risk of being consumed twice, and what came of it."""
        rows = self._intervals("duplicate_risk_windows", group)
        confirmed = rows.filter(pl.col("outcome") == "CONFIRMED")
        verdict = (
            f"{rows.height} windows of duplicate risk, {confirmed.height} confirmed: "
            f"{rows['at_risk_messages'].sum()} messages at risk, "
            f"{rows['redelivered_messages'].sum()} delivered again"
        )
        return self._result(verdict, rows, "duplicate_risk_windows", group)

    def ownership(self, group: str | None = None) -> Result:
        """Who read which queue, from when until when."""
        rows = self._intervals("ownership", group)
        held = rows.filter(pl.col("state") == "OPEN")
        clients = held["client_id"].n_unique() if held.height else 0
        verdict = f"{held.height} queues are read by {clients} clients"
        return self._result(verdict, rows, "ownership", group)

    def rebalances(self, group: str | None = None) -> Result:
        """Changes of membership and subscription."""
        rows = self._of(group, "rebalances")
        kinds = rows["kind"].value_counts(sort=True).iter_rows() if rows.height else ()
        told = ", ".join(f"{count} {kind}" for kind, count in kinds)
        return self._result(f"{rows.height} changes: {told or 'none'}", rows, "rebalances", group)

    def dead_letters(self, group: str | None = None) -> Result:
        """Messages that ended in a dead-letter queue."""
        rows = self._of(group, "dead_letters")
        return self._result(f"{rows.height} dead letters", rows, "dead_letters", group)

    def checks(self, status: str | None = None) -> Result:
        """The newest run of the data-quality checks; `status` "failed" or "passed" keeps those."""
        if status not in (None, "failed", "passed"):
            raise ConfigError("status", status, "failed or passed")
        rows = self._read("dq_results")
        if rows.height:
            rows = rows.filter(pl.col("run_id") == rows.sort("started_at")["run_id"][-1])
        failed = rows.filter(~pl.col("success"))
        verdict = f"{failed.height} of {rows.height} checks failed"
        if status is not None:
            rows = rows.filter(pl.col("success") == (status == "passed"))
        return self._result(verdict, rows, "dq_results")

    def sql(self, query: str) -> Result:
        """Any SELECT over the gold tables, by their names; newest revisions are yours to pick."""
        present = [name for name in BY_NAME if self.lake.exists(self.lake.gold(name))]
        used = [name for name in present if name in query]
        if not used:
            raise ConfigError("query", query, f"a SELECT from one of {', '.join(present)}")
        with pl.SQLContext({name: self._read(name) for name in used}) as context:
            rows = context.execute(query, eager=True)
        return self._result(f"{rows.height} rows", rows, used[0])

    def timeline(self, group: str) -> Any:
        """Lag, stalls, duplicate risk and rebalances of a group on one time axis."""
        lag = self._of(group, "consumer_lag")
        figures, theme, view = _shown("figures.group"), _shown("theme"), _shown("view")
        return figures.lag_timeline(
            lag,
            stalls=self._intervals("stalled_windows", group),
            risks=self._intervals("duplicate_risk_windows", group),
            rebalances=self._of(group, "rebalances"),
            span=_span(view, lag),
            colours=theme.palette(None),
        )

    def overview(self) -> Any:
        """Time lag of all groups over time."""
        lag = self._read("consumer_lag")
        figures, theme, view = _shown("figures.overview"), _shown("theme"), _shown("view")
        span = _span(view, lag)
        step = figures.bucket(span)
        cells = _shown("held").held_cells(lag.lazy(), until=span.end, step=step).collect()
        worst = cells.group_by("group").agg(pl.col("time_lag_ms").max())
        order = worst.sort("time_lag_ms", descending=True, nulls_last=True)["group"].to_list()
        return figures.lag_heatmap(
            cells, groups=order, marks={}, span=span, colours=theme.palette(None)
        )

    def _repr_html_(self) -> str:
        return f"<pre>{_escaped(str(self))}</pre>"

    def __str__(self) -> str:
        lines = [f"Lake at {self.lake.root}"]
        for name in BY_NAME:
            if self.lake.exists(self.lake.gold(name)):
                version = self.lake.table(self.lake.gold(name)).version()
                lines.append(f"  {name:24} version {version}")
        return "\n".join(lines)

    def _ipython_key_completions_(self) -> list[str]:
        return sorted(self._read("group_state")["group"].unique().to_list())

    def __getitem__(self, group: str) -> Result:
        return self.lag(group)

    def _read(self, name: str) -> pl.DataFrame:
        table = self.lake.table(self.lake.gold(name))
        self._versions[name] = table.version()
        return pl.DataFrame(pl.from_arrow(whole_table(table)))

    def _of(
        self,
        group: str | None,
        name: str,
        *,
        topic: str | None = None,
        queue: int | None = None,
        since: str | None = None,
    ) -> pl.DataFrame:
        rows = self._read(name)
        if group is not None:
            known = rows["group"].unique().sort().to_list()
            if group not in known and name == "consumer_lag":
                some = ", ".join(known[:SHOWN_ROWS]) or "none yet"
                raise ConfigError("group", group, f"a group with lag in this lake: {some}")
            rows = rows.filter(pl.col("group") == group)
        if topic is not None:
            rows = rows.filter(pl.col("topic") == topic)
        if queue is not None:
            rows = rows.filter(pl.col("queue_id") == queue)
        if since is not None and rows.height:
            newest = rows["observed_at"].to_list()
            rows = rows.filter(pl.col("observed_at") >= max(newest) - _span_of(since))
        return rows.sort("observed_at", *(["seq"] if "seq" in rows.columns else []))

    def _intervals(self, name: str, group: str | None) -> pl.DataFrame:
        rows = self._of(group, name).sort("revision")
        newest = rows.unique("window_id", keep="last", maintain_order=True)
        return newest.sort("opened_at", "window_id")

    def _result(
        self, verdict: str, rows: pl.DataFrame, table: str, group: str | None = None
    ) -> Result:
        return Result(verdict, rows, table, self._versions[table], self, group)


class _Desk:
    """The lake that module-level questions go to."""

    def __init__(self) -> None:
        self.handle: LakeHandle | None = None


_desk: Final = _Desk()


def connect(address: str | os.PathLike[str] | None = None) -> LakeHandle:
    """Open a lake: a path, an s3 URI, or, without an address, what `tidemark lab` was given."""
    place = os.fspath(address) if address is not None else os.environ.get(LAKE_VARIABLE)
    if place is None:
        raise ConfigError("lake", place, 'a path: tm.connect("var/lake")')
    handle = LakeHandle(Lake.at(place))
    gold: list[GoldTable] = list(BY_NAME.values())
    if not any(handle.lake.exists(handle.lake.gold(table.name)) for table in gold):
        raise LakeError(
            f"no gold table in {handle.lake.root}: start `tidemark pipeline run --lake "
            f"{handle.lake.root}`, or `make demo` for a lake with a story in it"
        )
    _desk.handle = handle
    return handle


def __getattr__(name: str) -> Any:
    """`tm.lag`, `tm.stalls` and the other questions, asked of the lake connected last."""
    if name.startswith("_") or not hasattr(LakeHandle, name):
        raise AttributeError(f"tm has no {name}")
    return getattr(_desk.handle or connect(), name)


def _shown(name: str) -> Any:
    """A module of the dashboard, loaded when a figure is asked for: it may import us, not we it."""
    return importlib.import_module(f"dashboards.{name}")


def _span(view: Any, lag: pl.DataFrame) -> Any:
    if lag.is_empty():
        raise LakeError("nothing to draw: no lag was reported yet")
    moments: list[datetime] = lag["observed_at"].to_list()
    begin, end = min(moments), max(moments)
    return view.Span(start=begin, end=end, data_end=end, now=end)


def _span_of(text: str) -> timedelta:
    unit, number = text[-1:], text[:-1]
    if unit not in UNITS_S or not number.isdigit():
        raise ConfigError("since", text, 'a number and a unit, like "90s", "15m", "6h" or "2d"')
    return timedelta(seconds=int(number) * UNITS_S[unit])


def _newest(rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    return rows.sort("observed_at", "seq").unique(key, keep="last", maintain_order=True)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
