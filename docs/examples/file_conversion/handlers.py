"""The handlers: a broadcast that converts, and two jobs that see to what it leaves.

CONVERSION_DATABASE is an address of SQLAlchemy's, CONVERSION_STORE the place of the files
(`s3://bucket`, with AWS_ENDPOINT_URL and the like beside it). A job's parameters are JSON; what is
not there has the value below.

    tidemark executor --admin ADDRESS --app files --module file_conversion.handlers
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final

import obstore
import sqlalchemy as sa
from obstore.exceptions import BaseError
from obstore.store import from_url

from file_conversion import rows
from file_conversion.rules import End, Row, converted, summary, target_of
from pipelines.scheduler.executor import JobContext, handler

AT_ONCE: Final = 4
"""Rows under way at once in one run."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the parameters of a job may say."""

    rows: int = 100
    """At most so many in one run."""
    patience_s: float = 600
    """After so long a run returns, whatever is still at work."""
    stuck_after_s: float = 1800
    """A row that was taken so long ago is given to others; longer than a row can take."""


@handler("convert-files")
def convert_files(context: JobContext) -> None:
    """Convert what waits of this run's shard. What failed is tried again by the next runs."""
    given = Given(**json.loads(context.parameters or "{}"))
    mine = rows.waiting(_database(), context.shard_index, context.shard_total, rows_max=given.rows)
    context.log(f"shard {context.shard_index} of {context.shard_total}: {len(mine)} rows")
    context.handle_success(summary(_convert_all(context, mine, given.patience_s)))


@handler("give-back-stuck-files")
def give_back_stuck_files(context: JobContext) -> None:
    """Give rows to others whose executor is gone."""
    given = Given(**json.loads(context.parameters or "{}"))
    before_ms = _now_ms() - int(given.stuck_after_s * 1000)
    given_back = rows.give_back_stuck(_database(), claimed_before_ms=before_ms)
    context.handle_success(f"{given_back} given back")


@handler("retry-hopeless-files")
def retry_hopeless_files(context: JobContext) -> None:
    """Try what failed too often once more, and have people look at what fails again: this run
    fails, so that its alarm goes off."""
    given = Given(**json.loads(context.parameters or "{}"))
    tried = rows.hopeless(_database(), rows_max=given.rows)
    ends = _convert_all(context, tried, given.patience_s)
    if End.FAILED in ends:
        context.handle_fail(summary(ends))
    else:
        context.handle_success(summary(ends))


def _convert_all(context: JobContext, mine: Sequence[Row], patience_s: float) -> list[End]:
    """Convert some at once; return when all have ended, or when patience has. What is at work then
    goes on while this process lives, and nobody else takes it before it counts as stuck."""
    pool = ThreadPoolExecutor(AT_ONCE)
    works = [pool.submit(_convert, context, row) for row in mine]
    try:
        ended, open_still = wait(works, timeout=patience_s)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return [work.result() for work in ended] + [End.AT_WORK] * len(open_still)


def _convert(context: JobContext, row: Row) -> End:
    word = rows.claim(_database(), row, now_ms=_now_ms())
    if word is None:
        return End.OF_ANOTHER
    context.log(f"row {row.row_id} is taken")
    try:
        target = target_of(row.source)
        fetched = obstore.get(_store(), row.source).bytes()
        obstore.put(_store(), target, converted(bytes(fetched)))
    except (BaseError, OSError, ValueError) as error:
        context.log(f"row {row.row_id}, {row.source}: {error}")
        is_ours = rows.fail(_database(), row, word, str(error))
        return End.FAILED if is_ours else End.TOO_LATE
    is_ours = rows.succeed(_database(), row, word, target=target, now_ms=_now_ms())
    return End.CONVERTED if is_ours else End.TOO_LATE


@functools.cache
def _database() -> sa.Engine:
    return rows.opened(os.environ["CONVERSION_DATABASE"])


@functools.cache
def _store() -> Any:
    return from_url(os.environ["CONVERSION_STORE"])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
