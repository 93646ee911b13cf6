"""Converts judged queues into rows for the downstream marts.

Every queue that was looked at at a tick is a row with its figures. Rows in trouble (queues shown as
bad, or good again, or with messages that a crash would repeat, at ticks at which that may have
changed) have all columns; in others those behind `complete_from_us` are null. Invariant: a row a
queue and tick; rows in trouble lie before all others, each kind in the order of ticks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.base.settings import SECOND_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.judging.attention import NOTHING_SAMPLED, Attention
from pipelines.marts.judging.packed import UNKNOWN, Flags, as_column, numbers
from pipelines.marts.judging.progress import open_messages
from pipelines.marts.judging.rules import KINDS, RULES, TOO_EARLY, Verdicts, time_lag_us
from pipelines.marts.keys import QUEUE_FIELDS
from pipelines.marts.mart import Positions

PERIOD_US: Final = 10 * SECOND_US
"""Groups, and what is exposed to a crash, are reported on a grid of this period."""

HEAD: Final = ("head_message_id", "head_offset", "head_since_us", "stack")
"""What a sample reports on the head of a client's window."""

_THIN: Final = (
    ("number", pa.int32()),
    ("tick_us", pa.int64()),
    ("is_troubled", pa.bool_()),
    ("is_evaluated", pa.bool_()),
    ("is_bad", pa.bool_()),
    ("was_bad", pa.bool_()),
    ("ends", pa.bool_()),
    ("rule", KEY_TEXT),
    ("lag", pa.int64()),
    ("open", pa.int64()),
    ("open_before", pa.int64()),
    ("growth", pa.int64()),
    ("retained", pa.int64()),
    ("waiting_since_us", pa.int64()),
    ("members", pa.int32()),
    ("seq", pa.int64()),
    ("complete_from_us", pa.int64()),
    ("is_silent", pa.bool_()),
    ("is_unnamed", pa.bool_()),
    ("swings", pa.bool_()),
    ("jumped_us", pa.int64()),
)
_IN_TROUBLE: Final = (
    ("cluster", KEY_TEXT),
    ("broker", KEY_TEXT),
    *QUEUE_FIELDS,
    ("kind", KEY_TEXT),
    ("is_exposed", pa.bool_()),
    ("time_lag_us", pa.int64()),
    ("committed", pa.int64()),
    ("pulled", pa.int64()),
    ("min_offset", pa.int64()),
    ("max_offset", pa.int64()),
    ("committed_before", pa.int64()),
    ("pulled_before", pa.int64()),
    ("max_offset_before", pa.int64()),
    ("high", pa.int64()),
    ("reached", pa.int64()),
    ("is_told", pa.bool_()),
    ("stands", pa.bool_()),
    ("patience_us", pa.int64()),
    ("passed", pa.int64()),
    ("head_age_us", pa.int64()),
    ("usual_us", pa.int64()),
    ("commit_cadence_ms", pa.int64()),
    ("open_since_us", pa.int64()),
    ("reports", pa.int64()),
    ("last_pull_us", pa.int64()),
    ("client_id", pa.string()),
    ("sampled_client", pa.string()),
    ("held_count", pa.int64()),
    ("head_message_id", pa.string()),
    ("head_offset", pa.int64()),
    ("head_since_us", pa.int64()),
    ("stack", pa.string()),
)
JUDGED: Final = pa.schema([*_THIN, *_IN_TROUBLE])
"""waiting_since_us: store time of the message at the consume offset; far in the future when nothing
waits, null when unknown. ends: the queue is gone from this tick on. complete_from_us: the window is
complete one window after this tick.

open, open_before: messages that nobody has finished, as far as is known, now and a window ago; the
latter null where the offset has jumped since. jumped_us: the last tick at which it did.
reached: the first of them; open_since_us: its store time, as waiting_since_us. growth: messages an
hour by which they become more, below 0: fewer; 0 when neither is certain, null when it is too early
to say. swings: the lag swings regularly, so that a growth of 0 is certain. retained: messages that
the queue keeps before the first open one, where they become more and the queue has begun to delete.
is_told: the client reports what it holds. stands: has what is reached not moved within the window?
patience_us: how long the queue has to stand before that is reported. is_silent: its client reports
neither what it holds nor, as far as was seen, how often it commits its offset. commit_cadence_ms:
how often its offset is committed, null when that is not known yet.
"""


class JudgedRows:
    """Collects the rows of a cycle."""

    def __init__(
        self,
        attention: Attention,
        keys: pa.Table,
        clients: pa.Table,
        samples: pa.Table,
    ) -> None:
        self._attention = attention
        self._keys = keys
        self._clients = clients
        self._samples = samples
        self._before = np.full(len(attention.chosen), NOTHING_SAMPLED)
        """The sample that each queue had before the one of this tick."""
        self._is_replaced = np.zeros(len(attention.chosen), bool)
        self._has_samples = False
        self._healthy: list[list[np.ndarray[tuple[int], np.dtype[np.generic]]]] = []
        self._troubled: list[list[np.ndarray[tuple[int], np.dtype[np.generic]]]] = []
        self._details: list[pa.Table] = []

    def before_samples(self, places: Positions) -> None:
        """These queues are about to have another sample."""
        self._before[places] = self._attention.sample[places]
        self._is_replaced[places] = True
        self._has_samples = True

    def add(self, tick_us: int, verdicts: Verdicts) -> None:
        """The rows of a tick."""
        may_concern = (
            verdicts.is_bad
            | verdicts.was_bad
            | verdicts.is_exposed
            | verdicts.is_changed
            | verdicts.ends
        )
        concerned = np.flatnonzero(verdicts.is_counted & may_concern)
        is_troubled = np.zeros(len(verdicts.rows), bool)
        if len(concerned):
            is_period = tick_us % PERIOD_US == 0
            is_news = (
                verdicts.is_changed
                | (verdicts.is_bad != verdicts.was_bad)
                | verdicts.is_anew
                | verdicts.ends
            )
            if is_period:
                is_news |= verdicts.is_exposed
            changed = is_news[concerned] | self._has_new_head(verdicts.rows[concerned], tick_us)
            is_troubled[concerned[changed]] = True
        if self._has_samples:
            self._is_replaced[:] = False
            self._has_samples = False
        troubled = np.flatnonzero(is_troubled)
        if not len(troubled):
            self._healthy.append(self._thin(tick_us, verdicts, slice(None), is_troubled=False))
            return
        others = np.flatnonzero(~is_troubled)
        if len(others):
            self._healthy.append(self._thin(tick_us, verdicts, others, is_troubled=False))
        self._troubled.append(self._thin(tick_us, verdicts, troubled, is_troubled=True))
        self._details.append(self._detail(tick_us, verdicts, troubled))

    def table(self) -> pa.Table:
        """All rows."""
        parts = [_thin_table(self._troubled), _thin_table(self._healthy)]
        details = [*self._details, _no_details(parts[1].num_rows)]
        detail = pa.concat_tables(details).unify_dictionaries()
        thin = pa.concat_tables(parts).unify_dictionaries()
        return pa.table([*thin.columns, *detail.columns], schema=JUDGED)

    def _has_new_head(self, rows: Positions, tick_us: int) -> Flags:
        """Does the sample that the queue has now name another head than the one before, or report
        more of it?
        """
        attention = self._attention
        sample, replaced = attention.sample[rows], self._before[rows]
        found = np.zeros(len(rows), bool)
        if not self._has_samples:
            return found
        both = np.flatnonzero(self._is_replaced[rows] & (sample != NOTHING_SAMPLED))
        former = attention.former_samples(replaced[both], rows[both], tick_us)
        had = pa.array(former, mask=former == NOTHING_SAMPLED)
        for name in HEAD:
            heads = self._samples[name]
            now = heads.take(pa.array(sample[both])).combine_chunks()
            before = heads.take(had).combine_chunks()
            is_other = pc.fill_null(pc.not_equal(now, before), True)
            found[both] |= np.asarray(pc.and_(is_other, pc.is_valid(now)))
        return found

    def _thin(
        self, tick_us: int, verdicts: Verdicts, some: Positions | slice, *, is_troubled: bool
    ) -> list[np.ndarray[tuple[int], np.dtype[np.generic]]]:
        attention = self._attention
        rows = verdicts.rows[some]
        columns = attention.columns
        return [
            attention.chosen[rows].astype(np.int32),
            np.full(len(rows), tick_us),
            np.full(len(rows), is_troubled),
            verdicts.is_evaluated[some],
            verdicts.is_bad[some],
            verdicts.was_bad[some],
            verdicts.ends[some],
            np.where(verdicts.is_early[some], TOO_EARLY, verdicts.judged.rule[some]).astype(
                np.int32
            ),
            columns["lag"][rows],
            *_open(columns, rows, verdicts, some, has_jumped=attention.has_jumped(rows, tick_us)),
            columns["growth"][rows],
            _retained(columns, rows, verdicts, some),
            columns["waiting_since_us"][rows],
            columns["members"][rows],
            columns["seq"][rows],
            verdicts.complete_from_us[some],
            verdicts.is_silent[some],
            columns["unnamed_us"][rows] != UNKNOWN,
            verdicts.swings[some],
            columns["jumped_us"][rows],
        ]

    def _detail(self, tick_us: int, verdicts: Verdicts, some: Positions) -> pa.Table:
        attention = self._attention
        rows = verdicts.rows[some]
        now = {name: column[rows] for name, column in attention.columns.items()}
        keys = self._keys.take(pa.array(attention.chosen[rows]))
        sample = attention.sampled_rows(rows, tick_us)
        of_sample = self._samples.take(pa.array(sample, mask=sample == NOTHING_SAMPLED))
        client = pa.array(now["client"], mask=now["client"] < 0)
        before = {name: column[some] for name, column in verdicts.before.items()}
        made = {
            **dict(zip(keys.schema.names, keys.columns, strict=True)),
            "kind": _texts(verdicts.judged.kind[some], KINDS),
            "is_exposed": pa.array(verdicts.is_exposed[some]),
            "time_lag_us": as_column(time_lag_us(tick_us, now["waiting_since_us"])),
            "committed_before": as_column(before["committed"]),
            "pulled_before": as_column(before["pulled"]),
            "max_offset_before": as_column(before["max_offset"]),
            "high": as_column(attention.highs(rows, tick_us)),
            "reached": as_column(now["reached"]),
            "is_told": pa.array(verdicts.is_reported[some]),
            "stands": pa.array(verdicts.stands[some]),
            "patience_us": pa.array(verdicts.patience_us[some]),
            "passed": as_column(verdicts.passed.count[some]),
            "head_age_us": as_column(verdicts.passed.head_age_us[some]),
            "usual_us": as_column(verdicts.passed.usual_us[some]),
            "commit_cadence_ms": as_column(
                np.where(now["commit_cadence_ms"] < 0, UNKNOWN, now["commit_cadence_ms"])
            ),
            "open_since_us": as_column(verdicts.waiting_since_us[some]),
            "reports": as_column(_since(now["reports"], before["reports"], before["max_offset"])),
            "client_id": self._clients["client_id"].take(client),
            "held_count": as_column(numbers(of_sample["held_count"])),
            "sampled_client": of_sample["client_id"],
            "head_message_id": of_sample["head_message_id"],
            "head_offset": as_column(numbers(of_sample["head_offset"])),
            "head_since_us": as_column(numbers(of_sample["head_since_us"])),
            "stack": of_sample["stack"],
        }
        for name in ("committed", "pulled", "min_offset", "max_offset", "last_pull_us"):
            made[name] = as_column(now[name])
        return pa.table([made[name] for name, _ in _IN_TROUBLE], schema=pa.schema(_IN_TROUBLE))


def _open(
    now: Mapping[str, Positions],
    rows: Positions,
    verdicts: Verdicts,
    some: Positions | slice,
    *,
    has_jumped: Flags,
) -> tuple[Positions, Positions]:
    """Messages that nobody has finished, now and a window ago. Of what was pulled and not reported
    nobody says that it is; a window ago says nothing where reports are that rare, nor where the
    offset has jumped since.
    """
    before = open_messages(verdicts.before["max_offset"][some], verdicts.before["reached"][some])
    by_pulls = verdicts.by_pulls[some]
    unreported = open_messages(now["max_offset"][rows], now["committed"][rows])
    return (
        np.where(by_pulls, unreported, verdicts.open[some]),
        np.where(by_pulls | has_jumped, UNKNOWN, before),
    )


def _retained(
    now: Mapping[str, Positions], rows: Positions, verdicts: Verdicts, some: Positions | slice
) -> Positions:
    """How many messages the queue keeps before the one that is reached, where it falls behind."""
    first, growth = now["min_offset"][rows], now["growth"][rows]
    is_known = (verdicts.open[some] != UNKNOWN) & (growth > 0) & (first > 0)
    return np.where(is_known, now["reached"][rows] - first, UNKNOWN)


def _since(reports: Positions, before: Positions, max_offset_before: Positions) -> Positions:
    """Reports within the window; none when the queue was not known at its beginning."""
    return np.where(max_offset_before == UNKNOWN, 0, reports - before)


def _texts(codes: Positions, words: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), list(words))


def _thin_table(parts: list[list[np.ndarray[tuple[int], np.dtype[np.generic]]]]) -> pa.Table:
    if not parts:
        return pa.schema(_THIN).empty_table()
    columns = []
    for number, (name, kind) in enumerate(_THIN):
        values = np.concatenate([part[number] for part in parts])
        if name == "rule":
            columns.append(_texts(values, RULES))
        elif values.dtype == np.int64:
            columns.append(as_column(values, kind))
        else:
            columns.append(pa.array(values))
    return pa.table(columns, schema=pa.schema(_THIN))


def _no_details(count: int) -> pa.Table:
    """Nulls, which columns of a type share: a row in no trouble needs no memory for them."""
    none = {kind: pa.nulls(count, kind) for kind in {kind for _, kind in _IN_TROUBLE}}
    return pa.table([none[kind] for _, kind in _IN_TROUBLE], schema=pa.schema(_IN_TROUBLE))
