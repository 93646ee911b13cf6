"""Builds current-state rows that no mart holds, such as those for emitters and jobs.

Place in the walk: a `Moment` and rows that somebody has read → tables as `rule_tables` declares
them. Invariant: pure. A queue that came back is not gone: who hands in ended queues hands in what
lives. Absent on purpose: reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import polars as pl

from pipelines.alerting.rule_tables import EMITTERS, JOB_RUNS, PIPELINE, no_rows
from pipelines.base.settings import MINUTE_US, MS_US
from pipelines.base.time_units import micros, moment_at
from pipelines.marts.group_state import GONE
from pipelines.reading.moment import Moment, cluster_of

if TYPE_CHECKING:
    from pipelines.scheduler.store.troubles import Trouble

WAITING_US: Final = MINUTE_US
"""So long ago the process that computes gold may have looked for facts in vain, and lives: it says
so each 10 s."""
_QUEUE: Final = ("cluster", "broker", "group", "topic", "queue_id")


def rows_of_lake(moment: Moment | None, now_us: int) -> dict[str, pl.DataFrame]:
    """The rows of `emitters` and `pipeline` at a moment; None: there is no complete cycle.

    now_us: µs of this process's clock, against which the age of gold is held.
    """
    emitters = [] if moment is None else _emitters(moment)
    present = None if moment is None else moment.present
    horizon = None if moment is None else moment.reported_to
    age_ms = None if horizon is None else (now_us - micros(horizon)) // MS_US
    looked_at = None if moment is None else moment.looked_at
    pipeline = {
        "observed_at": moment_at(now_us) if present is None else present,
        "run_id": None if moment is None else moment.run_id,
        "cycle": None if moment is None else moment.cycle,
        "planned_at": None if moment is None else moment.planned_at,
        "age_ms": age_ms,
        "waits": looked_at is not None and now_us - micros(looked_at) <= WAITING_US,
        "emitters": len(emitters),
        "emitters_silent": sum(bool(one["is_silent"]) for one in emitters),
    }
    return {
        EMITTERS.name: pl.DataFrame(emitters, schema=no_rows(EMITTERS.name).schema),
        PIPELINE.name: pl.DataFrame([pipeline], schema=no_rows(PIPELINE.name).schema),
    }


def _emitters(moment: Moment) -> list[dict[str, object]]:
    silent, ahead, reasons = moment.silent, moment.ahead, moment.unknown
    present = moment.present
    assert present is not None or not moment.reached
    return [
        {
            "observed_at": present,
            "cluster": cluster_of(one.emitter),
            "broker": one.emitter.split("/")[1] if "/" in one.emitter else one.emitter,
            "emitter": one.emitter,
            "judged_to": one.judged_to,
            "age_ms": 0 if present is None else (micros(present) - micros(one.judged_to)) // MS_US,
            "is_silent": one in silent,
            "is_ahead": one in ahead,
            "reason": reasons.get(one.emitter),
        }
        for one in moment.there
    ]


def gone(
    states: pl.DataFrame, ended: pl.DataFrame, living: pl.DataFrame
) -> tuple[Mapping[str, str], ...]:
    """What is not there any more, by the labels that name it.

    states: the newest rows of group_state, those of ended groups among them. ended: rows of
    ended_queues. living: the newest rows of queues that are there, by whichever table.
    """
    is_gone = states.filter(pl.col("state") == GONE).select("cluster", "broker", "group")
    queues = ended.select(_QUEUE).unique(maintain_order=True)
    queues = queues.join(living.select(_QUEUE), on=_QUEUE, how="anti")
    found = [*is_gone.iter_rows(named=True), *queues.iter_rows(named=True)]
    return tuple({name: str(value) for name, value in one.items()} for one in found)


def job_rows(troubles: Iterable[Trouble], now_us: int) -> pl.DataFrame:
    """One row a run. now_us: µs of this process's clock."""
    rows = [
        {
            "observed_at": moment_at(now_us),
            "app": one.app,
            "job": one.job,
            "job_id": one.job_id,
            "run": one.run,
            "outcome": one.outcome,
            "executor": one.executor,
            "planned_at": moment_at(one.planned_ms * MS_US),
            "opened_at": moment_at(one.since_ms * MS_US),
            "evidence": one.evidence,
            "last_lines": one.last_lines or None,
        }
        for one in troubles
    ]
    return pl.DataFrame(rows, schema=no_rows(JOB_RUNS.name).schema)
