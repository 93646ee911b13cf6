"""Displays a `tm` answer as a sentence, a table, its source and a figure.

Invariant: the sentence says to when the data had been judged; the rows are all of the answer, in
all columns. Absent on purpose: reading.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pandas as pd
import polars as pl
import pyarrow as pa

from engine.foundation.errors import ConfigError
from pipelines.base.wording import plural
from pipelines.lake.schemas import write_stream

SHOWN_ROWS: Final = 20
_WHOLE: Final = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}
_QUEUE: Final = ("group", "topic", "queue_id")

FIRST: Final = {
    "group_state": (
        *("group", "state", "reason", "time_lag_ms", "lag_messages"),
        *("lag_at_least_messages", "trend", "members"),
    ),
    "consumer_lag": ("observed_at", *_QUEUE, "lag_messages", "time_lag_ms", "trend", "committed"),
    "consumer_lag_rollups": (
        "observed_at",
        *_QUEUE,
        "lag_min",
        "lag_max",
        "lag_last",
        "time_lag_ms_max",
        "is_worst",
    ),
    "stalled_windows": (*_QUEUE, "rule", "kind", "state", "began_at", "stood_ms", "lag_messages"),
    "duplicate_risk_windows": (
        *_QUEUE,
        "cause",
        "outcome",
        "state",
        "opened_at",
        "at_risk_messages",
        "redelivered_messages",
    ),
    "lag_causes": (
        *("observed_at", "group", "cause", "measured", "expected", "unit", "share_percent"),
        *("topic", "queue_id", "client_id", "evidence"),
    ),
    "ownership": (*_QUEUE, "client_id", "state", "opened_at", "closed_at", "ended_by"),
    "rebalances": ("observed_at", "group", "kind", "client_id", "members_after", "reason"),
    "passed_over_messages": (
        *("made_again_at", *_QUEUE, "outcome", "from_offset", "to_offset", "messages"),
        *("error_messages", "evidence"),
    ),
    "replaced_messages": (
        "observed_at",
        "group",
        "topic",
        "queue_id",
        "offset",
        "message_id_before",
        "message_id",
        "outcome",
        "client_id",
    ),
    "lost_unread_messages": (
        *("observed_at", *_QUEUE, "from_offset", "to_offset", "messages", "error_messages"),
        "evidence",
    ),
    "dead_letters": (
        "observed_at",
        "group",
        "message_id",
        "origin_topic",
        "origin_queue_id",
        "origin_offset",
        "reconsume_times",
        "reason",
    ),
    "alerts": (
        *("observed_at", "kind", "rule", "severity", "group", "state", "summary", "muted"),
        *("author", "active_at", "resolved_at", "fingerprint"),
    ),
    "dq_results": ("expectation", "table", "success", "severity", "failed_rows", "observed_value"),
}
"""The columns that a person looks at, first in every answer and alone where it is printed."""


@dataclass(frozen=True, slots=True)
class Result:
    """An answer: its rows, the sentence that sums them up, and where they come from."""

    verdict: str
    rows: pl.DataFrame
    table: str
    version: int | None
    """Delta version of the table that was read; None when it does not exist yet."""
    judged_to: datetime | None
    """Up to when the emitters that speak had been judged."""
    draw: Callable[[], Any] | None = None
    first: tuple[str, ...] = ()
    """The columns shown where the answer is printed; all of them when none is named."""
    run_id: str | None = None
    cycle: int | None = None
    """The run, and its cycle, that the answer is of: asked `as_of` it again, it is the same."""
    revised_at: int | None = None
    """The cycle at which an emitter that came late changed what is known of the moment; None when
    none did."""
    found_since: str = ""
    """Of an answer as of a moment: what checks have found since of the rows it rests on. The answer
    stays what it was; empty when they have found nothing."""

    @property
    def digest(self) -> str:
        """A name of the rows, all columns and their order: equal for equal answers alone."""
        sink = pa.BufferOutputStream()
        write_stream(sink, self.rows.rechunk().to_arrow())
        return hashlib.sha256(sink.getvalue()).hexdigest()

    @property
    def df(self) -> Any:
        """The rows as pandas.

        Whole numbers stay whole beside unknowns: as floats, offsets above 2**53 would lose their
        last digits.
        """
        return self.rows.to_arrow().to_pandas(types_mapper=_WHOLE.get)

    def plot(self) -> Any:
        """The dashboard's figure of what was asked: the same groups, queues and time."""
        if self.draw is None:
            raise ConfigError(
                "plot", self.table, "a question about groups, lag, windows or dead letters"
            )
        return self.draw()

    def __len__(self) -> int:
        return self.rows.height

    @property
    def _said(self) -> str:
        return f"{self.verdict} {self.found_since}".rstrip()

    @property
    def _shown(self) -> pl.DataFrame:
        return self.rows.select(self.first or self.rows.columns).head(SHOWN_ROWS)

    @property
    def _source(self) -> str:
        version = "not there yet" if self.version is None else f"@ version {self.version}"
        rest = len(self.rows.columns) - len(self._shown.columns)
        more = f", {plural(rest, 'more column')} in .df" if rest else ""
        return f"{self.table} {version}, {plural(self.rows.height, 'row')}{more}"

    def __repr__(self) -> str:
        with pl.Config(tbl_cols=-1, tbl_rows=SHOWN_ROWS, tbl_hide_dataframe_shape=True):
            return f"{self._said}\n{self._shown}\n[{self._source}]"

    def _repr_html_(self) -> str:
        shown = self._shown.to_arrow().to_pandas(types_mapper=_WHOLE.get)
        table = shown.to_html(index=False, notebook=True, na_rep="unknown")
        return f"<p><strong>{escaped(self._said)}</strong></p>{table}<p>{escaped(self._source)}</p>"


def escaped(text: str) -> str:
    """A text inside HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
